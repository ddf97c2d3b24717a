# libkolo_cuda.so: all of src/*/cuda, opened by the programs when a GPU is chosen. libkolo_comm_cuda.so: what
# of it libkolo_comm.so opens when another program brings vectors on a GPU. Part of the GNUmakefile.
#   CUDA=1                $(BUILD)/lib/libkolo_cuda.so: .c by CC, .cu by nvcc, linked with cuDNN, cuBLASLt,
#                         NCCL; $(BUILD)/lib/libkolo_comm_cuda.so
#   make tests, check     $(BUILD)/standin/ the same, where the headers of CUDA are: the same sources, with
#                         the kernels compiled by CXX to
#                         run on the host and tests/standin in the place of CUDA's libraries
# Tests: tests/cuda/ROOM_what.c      opens the library (tests/cuda_rig.h): the stand-in's, or the one that
#                                    KOLO_CUDA_LIBRARY names
#        tests/toolkit/ROOM_what.c   linked with what it needs of the library's C files and with the real
#                                    libraries: what these say without a GPU

NCCL_C   := $(addprefix src/comm/cuda/,gpu_channel.c link.c nccl.c)
CUDA_C   := $(sort $(filter-out $(if $(filter-out 0,$(NCCL)),,$(NCCL_C)),$(wildcard src/*/cuda/*.c)))
CUDA_CU  := $(sort $(wildcard src/*/cuda/*.cu))
CUDA_OBJECTS := $(CUDA_C:%.c=$(BUILD)/%.o)
CUDA_KERNELS := $(CUDA_CU:%.cu=$(BUILD)/%.cu.o)
HOST_KERNELS := $(CUDA_CU:%.cu=$(BUILD)/standin/%.cu.o)
CUDA_LIBRARY := $(BUILD)/lib/libkolo_cuda.so
COMM_CUDA_LIBRARY := $(if $(filter-out 0,$(NCCL)),$(BUILD)/lib/libkolo_comm_cuda.so)
COMM_CUDA_OBJECTS := $(addprefix $(BUILD)/src/,launch/cuda/version.o \
               $(addprefix comm/cuda/,calls.o gpu_channel.o link.o))
CUDA_FLAGS    = $(CUDA_CFLAGS) $(CUDNN_CFLAGS) $(if $(filter-out 0,$(NCCL)),$(NCCL_CFLAGS) -DKOLO_NCCL=1)
CUDA_LINK     = $(CUDNN_LIBS) $(CUDA_LIBS) $(if $(filter-out 0,$(NCCL)),$(NCCL_LIBS))
CFLAGS_src_launch_cuda_version = -DKOLO_CONTRACT='"$(CONTRACT)"'

# compute capabilities with machine code; the last one also as PTX, which later GPUs compile when they load it
CUDA_ARCH     ?= $(if $(filter bundle bundle-now,$(MAKECMDGOALS)),90,80 90 100)
CUDA_TARGETS   = $(if $(NVCC_KNOWS),$(filter $(NVCC_KNOWS),$(CUDA_ARCH)),$(CUDA_ARCH))
NVCC_GENCODE  ?= $(foreach a,$(CUDA_TARGETS),-gencode arch=compute_$a,code=sm_$a) \
                 $(foreach a,$(lastword $(CUDA_TARGETS)),-gencode arch=compute_$a,code=compute_$a)
NVCCFLAGS     ?= -O3 -lineinfo -Xfatbin -compress-all
CUDA_CXXFLAGS ?= -O2 -g
CUDA_CPPFLAGS  = -Iinclude -Isrc -DKOLO_VERSION='"$(VERSION)"' $(CUDA_FLAGS)
CUDA_WARN     := -Wall -Wextra $(if $(filter-out 0,$(WERROR)),-Werror) -Wno-unknown-pragmas
space         := $(subst ,, )
comma         := ,
KOLO_NVCCFLAGS = -std=c++17 -ccbin $(lastword $(CXX)) \
               $(if $(filter-out 0,$(WERROR)),-Werror all-warnings) -Xcompiler \
               -fPIC,-g,$(subst $(space),$(comma),$(strip $(CUDA_WARN))) $(NVCC_GENCODE) $(NVCCFLAGS)
KOLO_CXXFLAGS  = -std=c++17 -fPIC -pthread $(ARCH) $(CUDA_WARN) $(SANITIZE) $(CUDA_CXXFLAGS)

ifneq ($(filter-out 0,$(CUDA)),)
all programs: $(CUDA_LIBRARY) $(COMM_CUDA_LIBRARY)
ifneq ($(filter-out $(NVCC_KNOWS),$(CUDA_ARCH)),)
ifneq ($(NVCC_KNOWS),)
$(info this nvcc knows no code for compute capability $(filter-out $(NVCC_KNOWS),$(CUDA_ARCH)); building for \
               $(CUDA_TARGETS))
endif
endif
endif

# what a change of rebuilds: everything, or what nvcc compiles
FLAGS_CUDA = $(CXX) $(KOLO_CXXFLAGS) $(CUDA_CPPFLAGS) $(CUDA_LINK)
FLAGS_NVCC = $(NVCC) $(KOLO_NVCCFLAGS)
$(BUILD)/flags.cuda: FLAGS_HERE = $(FLAGS_CUDA)
$(BUILD)/flags.nvcc: FLAGS_HERE = $(FLAGS_NVCC)
$(BUILD)/flags.cuda $(BUILD)/flags.nvcc: FORCE
	@mkdir -p $(@D); echo '$(subst ','\'',$(FLAGS_HERE))' | cmp -s - $@ || echo '$(subst ','\'',$(FLAGS_HERE))' \
	  > $@

$(CUDA_OBJECTS): EXTRA = $(CUDA_FLAGS)
$(CUDA_OBJECTS): $(BUILD)/flags.cuda
$(BUILD)/src/launch/cuda/version.o: $(BUILD)/contract
# NVCCFLAGS_src_ROOM_cuda_file adds flags to one file
NVCCFLAGS_src_optim_cuda_updater = -fmad=false # the bits of the C loops
$(CUDA_KERNELS): $(BUILD)/%.cu.o: %.cu $(BUILD)/flags.cuda $(BUILD)/flags.nvcc
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(KOLO_NVCCFLAGS) $(NVCCFLAGS_$(subst /,_,$(basename $<))) $(CUDA_CPPFLAGS) -MMD -MP -MF \
	  $(@:.o=.d) -MT $@ -c $< -o $@
$(HOST_KERNELS): $(BUILD)/standin/%.cu.o: %.cu $(BUILD)/flags.cuda
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -x c++ -DKOLO_EMULATE=1 -Itests $(KOLO_CXXFLAGS) -fsanitize=alignment,bounds $(CUDA_CPPFLAGS) \
	  -MMD -MP -c $< -o $@

# Whatever name of ours the library takes from the program must be there: said now, not when
# a GPU node opens it.
define link_library
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared -pthread -Wl,--as-needed -Wl,-rpath,'$$ORIGIN' $(SANITIZE) $(LDFLAGS) -o $@ \
	  $(filter %.o,$^) $1
	$(Q)nm -D --defined-only $(BUILD)/bin/kolo | sed 's/.* //' | sort -u > $@.has; \
	  lacks=$$(nm -D --undefined-only $@ | sed -n 's/^ *U \(kolo_[A-Za-z0-9_]*\)$$/\1/p' | sort -u | comm -23 - \
	  $@.has); rm -f $@.has; \
	  if [ -n "$$lacks" ]; then echo "$@ needs what neither it nor $(BUILD)/bin/kolo has:" $$lacks >&2; exit 1; \
	  fi
endef
.PHONY: kernels
kernels: $(CUDA_KERNELS)
$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(CUDA_KERNELS) | $(BUILD)/bin/kolo
	$(call link_library,$(CUDA_LINK))

define link_comm_cuda
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared -pthread -Wl,--as-needed -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -Wl,-soname,$(@F) \
	  $(if $(SANITIZE),$(SANITIZE),-Wl,--no-undefined) $(LDFLAGS) -o $@ $(filter %.o,$^) $(COMM_LIBRARY) $1
endef
$(BUILD)/lib/libkolo_comm_cuda.so: $(COMM_CUDA_OBJECTS) $(BUILD)/src/comm/cuda/scale.cu.o $(COMM_LIBRARY)
	$(call link_comm_cuda,$(CUDA_LIBS) $(NCCL_LIBS) -ldl)

# ---- the stand-in and the tests ----------------------------------------------------------------------------
STANDIN := $(patsubst tests/standin/%,$(BUILD)/standin/%.o,$(sort \
               $(wildcard tests/standin/*.c tests/standin/*.cc)))
STANDIN_LIBRARY := $(BUILD)/standin/libkolo_cuda.so
$(BUILD)/standin/%.c.o: tests/standin/%.c $(BUILD)/flags $(BUILD)/flags.cuda
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(call compile,-Itests $(CUDA_FLAGS))
$(BUILD)/standin/%.cc.o: tests/standin/%.cc $(BUILD)/flags.cuda
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -DKOLO_EMULATE=1 -Itests $(KOLO_CXXFLAGS) $(CUDA_CPPFLAGS) -MMD -MP -c $< -o $@
$(STANDIN_LIBRARY): $(CUDA_OBJECTS) $(HOST_KERNELS) $(STANDIN) | $(BUILD)/bin/kolo
	$(call link_library,-lm -ldl)

STANDIN_COMM := $(BUILD)/standin/libkolo_comm_cuda.so
$(STANDIN_COMM): $(COMM_CUDA_OBJECTS) $(BUILD)/standin/src/comm/cuda/scale.cu.o $(STANDIN) $(COMM_LIBRARY)
	$(call link_comm_cuda,-lm -ldl)

CUDA_UNIT    := $(patsubst tests/cuda/%.c,$(BUILD)/tests/cuda/%,$(sort $(wildcard tests/cuda/*.c)))
TOOLKIT_UNIT := $(patsubst tests/toolkit/%.c,$(BUILD)/tests/toolkit/%,$(sort $(wildcard tests/toolkit/*.c)))
$(BUILD)/tests/cuda/%.o $(BUILD)/tests/toolkit/%.o: EXTRA = $(CUDA_FLAGS)
$(CUDA_UNIT): $(BUILD)/tests/cuda/%: $(BUILD)/tests/cuda/%.o $(call archives_until,train) | $(STANDIN_LIBRARY)
	$(linking_whole)
$(BUILD)/lib/room/cuda.a: $(CUDA_OBJECTS)
	$(call say,AR,$@)
	@mkdir -p $(@D); rm -f $@
	$(Q)$(AR) rcs $@ $^
$(TOOLKIT_UNIT): $(BUILD)/tests/toolkit/%: $(BUILD)/tests/toolkit/%.o $(BUILD)/lib/room/cuda.a \
               $(call archives_until,train)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(link) $(CUDA_LINK)
# tests/gpu/*.cu: programs of one file for machines with a GPU, part of the bundle
GPU_PROGRAMS := $(patsubst tests/gpu/%.cu,$(BUILD)/tests/gpu/%,$(sort $(wildcard tests/gpu/*.cu)))
$(GPU_PROGRAMS): $(BUILD)/tests/gpu/%: tests/gpu/%.cu $(BUILD)/flags.cuda $(BUILD)/flags.nvcc
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(KOLO_NVCCFLAGS) $(CUDA_CPPFLAGS) -cudart none -o $@ $< \
	  $(foreach w,$(CUDA_LIBS),-Xlinker $(w:-Wl$(comma)%=%)) -ldl
# Without NCCL, or without a header, there is no stand-in; without a library nothing for tests/toolkit.
# The list is for prove.
ifneq ($(and $(CUDA_HEADERS),$(filter-out 0,$(NCCL))),)
CUDA_TESTS := $(CUDA_UNIT) $(if $(and $(CUDA_LIBS),$(CUDNN_LIBS),$(NCCL_LIBS)),$(TOOLKIT_UNIT))
# by the address sanitizer; what the undefined one looks for stops kernels on the stand-in anyway
CUDA_WATCHED := $(CUDA_UNIT)
tests: $(STANDIN_LIBRARY) $(STANDIN_COMM) $(CUDA_TESTS)
endif
tests: $(BUILD)/tests/cuda.list
$(BUILD)/tests/cuda.list: FORCE
	@mkdir -p $(@D); printf '%s\n' $(CUDA_TESTS) > $@
-include $(wildcard $(CUDA_OBJECTS:.o=.d) $(CUDA_KERNELS:.o=.d) $(HOST_KERNELS:.o=.d) $(STANDIN:.o=.d))
