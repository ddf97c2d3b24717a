# make bundle: a folder, and an archive of it, that runs on another Linux (bundle.sh). Part of the
# GNUmakefile. $(BUILD)/bundle/{bin,lib}: the programs again, of the same objects, with the rooms in one
# library that they share, so that the code of thirty programs travels once. With CUDA=1 it holds the CUDA
# library for CUDA_ARCH (default for this goal: 90 and PTX for what comes later).
BUNDLE        := $(BUILD)/bundle
ROOMS_LIBRARY := $(BUNDLE)/lib/libkolo_rooms.so
BUNDLE_PARTS  := golden compare parity
BUNDLE_UNIT   := $(filter-out standin_%,$(if $(CUDA_TESTS),$(notdir $(CUDA_UNIT))))
BUNDLED       := $(addprefix $(BUNDLE)/bin/,kolo kolo-pack kolo-shards $(BUNDLE_PARTS) $(BUNDLE_UNIT))

$(ROOMS_LIBRARY): $(call archives_until,train)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(KOLO_LDFLAGS) -Wl,-Bsymbolic-functions,--no-undefined,-soname,$(@F) -o $@ \
	  -Wl,--whole-archive $^ -Wl,--no-whole-archive $(LIBS) $(WHOLE_LIBS)
$(BUNDLE)/bin/kolo: $(call room_objects,cmd)
# without libxml2: the library of Unicode below it has 30 MB on some systems, and no test in a bundle reads
# XML
BUNDLE_XML := $(BUNDLE)/hdf5_tools/readers/xml.o
$(BUNDLE)/bin/kolo-pack $(BUNDLE)/bin/kolo-shards: $(BUNDLE)/bin/%: $(BUILD)/hdf5_tools/%.o \
    $(filter-out %/readers/xml.o,$(TOOL_PARTS)) $(BUNDLE_XML)
$(BUNDLE_XML): hdf5_tools/readers/xml.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(KOLO_CPPFLAGS) -Ihdf5_tools $(KOLO_CFLAGS) -MMD -MP -c $< -o $@
$(addprefix $(BUNDLE)/bin/,$(BUNDLE_PARTS)): $(BUNDLE)/bin/%: $(BUILD)/tests/helpers/%.o
$(addprefix $(BUNDLE)/bin/,$(BUNDLE_UNIT)): $(BUNDLE)/bin/%: $(BUILD)/tests/cuda/%.o
$(BUNDLED): $(ROOMS_LIBRARY)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(KOLO_LDFLAGS) -rdynamic -o $@ $(filter %.o,$^) $(ROOMS_LIBRARY) $(LIBS)
tests: $(BUNDLED)

# with the CUDA library where there is an nvcc, unless CUDA= says otherwise
bundle:
	$(again) $(if $(and $(NVCC),$(filter file,$(origin CUDA))),CUDA=1) bundle-now
bundle-now: programs $(BUNDLED) $(if $(filter-out 0,$(CUDA)),$(GPU_PROGRAMS))
	$(Q)share/setup/bundle.sh '$(BUILD)' '$(VERSION)' '$(BUILD)' \
	  $(if $(filter-out 0,$(CUDA)),$(CUDA_LIBRARY) $(GPU_PROGRAMS))
