# Finds every library by *_HOME, pkg-config or a probe; says which package brings a missing one.
# Sets CPPFLAGS_ALL and LIBS_ALL.
pc = $(shell pkg-config $1 $2 2>/dev/null)
home_flags = $(if $($1_HOME),-I$($1_HOME)/include)
home_libs  = $(if $($1_HOME),-L$($1_HOME)/lib -Wl$(comma)-rpath$(comma)$($1_HOME)/lib)
comma := ,

HDF5_CFLAGS ?= $(if $(HDF5_HOME),$(call home_flags,HDF5),$(or $(call pc,--cflags,hdf5-serial),$(call pc,--cflags,hdf5)))
HDF5_LIBS   ?= $(if $(HDF5_HOME),$(call home_libs,HDF5) -lhdf5,$(or $(call pc,--libs,hdf5-serial),$(call pc,--libs,hdf5)))
JPEG_CFLAGS ?= $(call home_flags,JPEG)
JPEG_LIBS   ?= $(call home_libs,JPEG) -ljpeg
PNG_CFLAGS  ?= $(if $(PNG_HOME),$(call home_flags,PNG),$(call pc,--cflags,libpng))
PNG_LIBS    ?= $(call home_libs,PNG) -lpng -lz
YAML_CFLAGS ?= $(call home_flags,YAML)
YAML_LIBS   ?= $(call home_libs,YAML) -lyaml
CJSON_CFLAGS ?= $(call home_flags,CJSON)
CJSON_LIBS  ?= $(call home_libs,CJSON) -lcjson
HWLOC_CFLAGS ?= $(if $(HWLOC_HOME),$(call home_flags,HWLOC),$(call pc,--cflags,hwloc))
HWLOC_LIBS  ?= $(call home_libs,HWLOC) -lhwloc
DNNL_CFLAGS ?= $(call home_flags,DNNL)
DNNL_LIBS   ?= $(call home_libs,DNNL) -ldnnl
ifneq ($(MPI),0)
MPI_CFLAGS  ?= $(if $(MPI_HOME),$(call home_flags,MPI),$(or $(call pc,--cflags,mpich),$(call pc,--cflags,mpi))) -DKOLO_MPI=1
MPI_LIBS    ?= $(if $(MPI_HOME),$(call home_libs,MPI) -lmpi,$(or $(call pc,--libs,mpich),$(call pc,--libs,mpi)))
endif
ifneq ($(PMIX),0)
PMIX_CFLAGS ?= $(if $(PMIX_HOME),$(call home_flags,PMIX),$(call pc,--cflags,pmix)) -DKOLO_PMIX=1
PMIX_LIBS   ?= $(if $(PMIX_HOME),$(call home_libs,PMIX) -lpmix,$(call pc,--libs,pmix))
endif
CPPFLAGS_ALL = $(HDF5_CFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS) $(YAML_CFLAGS) $(CJSON_CFLAGS) $(HWLOC_CFLAGS) $(DNNL_CFLAGS) $(MPI_CFLAGS) $(PMIX_CFLAGS)
LIBS_ALL     = $(HDF5_LIBS) $(JPEG_LIBS) $(PNG_LIBS) $(YAML_LIBS) $(CJSON_LIBS) $(HWLOC_LIBS) $(DNNL_LIBS) $(MPI_LIBS) $(PMIX_LIBS)
