# libkolo_comm.so: collectives for other programs. Part of the GNUmakefile. The rooms comm, launch and base;
# of other libraries only MPI and PMIx. What it shows are the functions of
# include/kolo/{world,comm,error}.h.
COMM_MAJOR   := 1
COMM_LIBRARY := $(BUILD)/lib/libkolo_comm.so.$(COMM_MAJOR)
COMM_PUBLIC  := $(addprefix include/kolo/,world.h comm.h error.h)
COMM_LIBS     = $(if $(filter-out 0,$(MPI)),$(MPI_LIBS)) $(if $(filter-out 0,$(PMIX)),$(PMIX_LIBS)) -lm -ldl \
               -lrt

all programs: $(COMM_LIBRARY) $(BUILD)/lib/libkolo_comm.so
$(BUILD)/comm.map: $(COMM_PUBLIC)
	@mkdir -p $(@D)
	$(Q){ echo 'KOLO_COMM_$(COMM_MAJOR) { global:'; sed -nE \
	  's/^[a-z][a-z0-9_ ]*[ *](kolo_[a-z0-9_]+)\(.*/\1;/p' $^ | sort -u; echo 'local: *; };'; } > $@
$(COMM_LIBRARY): $(BUILD)/comm.map $(call room_objects,comm) $(call room_archive,launch) \
               $(call room_archive,base)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(KOLO_LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$(BUILD)/comm.map \
	  -Wl,--no-undefined -o $@ $(call room_objects,comm) \
	  -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(COMM_LIBS)
$(BUILD)/lib/libkolo_comm.so: $(COMM_LIBRARY)
	$(Q)ln -sf $(notdir $<) $@

# what tests load in the place of CUDA's driver
TEST_DRIVER := $(BUILD)/tests/driver/libcuda.so.1
tests: $(TEST_DRIVER)
$(BUILD)/tests/unit/comm_library_device: | $(TEST_DRIVER)
$(TEST_DRIVER): $(BUILD)/tests/driver/cuda.o
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(KOLO_LDFLAGS) -Wl,-soname,$(@F) -o $@ $< -ldl

# and of NVML
TEST_NVML := $(BUILD)/tests/driver/libnvidia-ml.so.1
tests: $(TEST_NVML)
$(TEST_NVML): $(BUILD)/tests/driver/nvidia_ml.o
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(KOLO_LDFLAGS) -Wl,-soname,$(@F) -o $@ $<

# libkolo_pmpi.so, for LD_PRELOAD with any MPI program: src/comm/pmpi over the same objects
PMPI_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard src/comm/pmpi/*.c)))
PMPI_LIBRARY := $(if $(filter-out 0,$(MPI)),$(BUILD)/lib/libkolo_pmpi.so)
all programs: $(PMPI_LIBRARY)
$(BUILD)/pmpi.map: share/setup/comm.mk
	@mkdir -p $(@D); echo '{ global: MPI_*; mpi_*_f08_; kolo_fail; kolo_fail_in; kolo_error_text; local: *; };' \
	  > $@
$(BUILD)/lib/libkolo_pmpi.so: $(BUILD)/pmpi.map $(PMPI_OBJECTS) $(call room_objects,comm) \
               $(call room_archive,launch) $(call room_archive,base)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(KOLO_LDFLAGS) -Wl,--version-script=$(BUILD)/pmpi.map -Wl,--no-undefined -o $@ \
	  $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(COMM_LIBS)
-include $(wildcard $(PMPI_OBJECTS:.o=.d) $(BUILD)/tests/driver/*.d)
