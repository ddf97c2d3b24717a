# The targets that are not building: run, tests, sanitizers, lint, installation. Part of the GNUmakefile.
.PHONY: sbom deb run check check-long check-scale scale-now bench peers asan ubsan tsan fuzz fuzzers lint \
        format docs manuals install uninstall dist bundle bundle-now clean distclean deps help

# make starts itself again, with as many jobs as there are CPUs where the user named no number
again = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$$(nproc))
# what is missing or would be left out, as far as probe.sh can tell without make
missing = $$($(probe_words) share/setup/probe.sh | sed -nE 's/^PROBE_(MISSING|LEFT_OUT) :=//p' | tr '\n' ' ')

# $1: goal. The probe is made again only when the last one did not find everything, or never ran; and once
# more when there was no compiler, without which no library can be looked for.
want = @for pass in 1 2; do names=; \
          [ "$$(grep -sxE 'PROBE_(MISSING|LEFT_OUT) :=' $(BUILD)/probe.mk | wc -l)" = 2 ] || \
          names=$(missing); \
          MPI='$(MPI)' share/setup/deps.sh install $1 $$names || exit 1; \
          case " $$names " in *" CC "*) ;; *) break ;; esac; done

deps:
	$(call want,check)
run:
	$(call want,run)
	$(again) all
	$(Q)KOLO_BUILD='$(abspath $(BUILD))' share/demo.sh
check:
	$(call want,check)
	$(again) all tests
	$(call prove,$(UNIT) $$(cat $(BUILD)/tests/cuda.list) $(SCRIPTS))
# what takes minutes each; TESTS='faces pack_kills': only these
TESTS ?= *
check-long:
	$(call want,check)
	$(again) all tests
	$(call prove,$(wildcard $(TESTS:%=tests/long/%.t)))
# algorithms of collectives on simulated clusters, where SimGrid is
check-scale:
	$(call want,check-scale)
	$(again) scale-now
scale-now: $(call room_archive,comm) $(call room_archive,base)
	$(Q)KOLO_BUILD='$(abspath $(BUILD))' tests/scale/check.sh

# Unit tests side by side, with one script at a time that starts a private Slurm, which mostly waits;
# then those that start many ranks, one by one: tests/testrules.yml. Threads that wait do not spin: the
# tests share the cores.
prove = $(Q)KOLO_BUILD='$(abspath $(BUILD))' KOLO_CACHE='$(abspath $(BUILD))/tests/cache' \
               OMP_WAIT_POLICY=passive HARNESS_RULESFILE=tests/testrules.yml \
          tests/prove.sh '$(abspath $(BUILD))/tests/tap' -j4 --timer $1

# `make bench` is quick; tests/peers/NAME.sh is `make bench-NAME`
bench: programs
	$(Q)for what in 'model=resnet20 size=32 batch=128' 'model=resnet50 size=224 batch=16'; do \
	  for precision in f32 bf16; do $(BUILD)/bin/kolo bench train $$what precision=$$precision steps=10; done; \
	  done
	$(Q)echo 'what reduce=canonical costs, same micro-batch and threads:'; \
	  for reduce in fast canonical; do $(BUILD)/bin/kolo bench train model=resnet20 size=32 batch=128 \
	  micro_batch=32 bn=ghost \
	    threads=1 steps=10 reduce=$$reduce; done
# other programs' Python packages, for bench-NAME and check-long: some GB in build/peers
peers:
	$(Q)KOLO_BUILD='$(abspath $(BUILD))' tests/peers/python.sh
bench-%: tests/peers/%.sh programs
	$(Q)KOLO_BUILD='$(abspath $(BUILD))' $<

# ---- sanitizers: a build folder each -----------------------------------------------------------------------
sanitized = +@$(MAKE) --no-print-directory BUILD=$(BUILD)/$1 SANITIZE='$2' CFLAGS='-O1 -g \
               -fno-omit-frame-pointer'
# libgomp is not built for the thread sanitizer and looks like a race to it: these tests do without OpenMP
TSAN_ROOMS := base data comm ckpt
TSAN_UNIT  := $(filter $(foreach r,$(TSAN_ROOMS),$(BUILD)/tests/unit/$r_%),$(UNIT))
# threads of ranks that do not wait for each other; their ranks are processes
TSAN_RANKS := $(addprefix $(BUILD)/tests/unit/exec_,async backup local)
# the watch of a launch is a thread, too: what it reads while MPI starts
TSAN_MPI   := $(if $(filter-out 0,$(MPI)),tests/mpi/launch.t)
asan:
	$(call sanitized,asan,-fsanitize=address) prove-asan
ubsan:
	$(call sanitized,ubsan,-fsanitize=undefined -fno-sanitize-recover=all) prove-ubsan
tsan:
	$(call sanitized,tsan,-fsanitize=thread) prove-tsan
.PHONY: prove-asan prove-ubsan prove-tsan
prove-asan: $(UNIT) $(CUDA_WATCHED)
	$(Q)ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 \
	  LSAN_OPTIONS=suppressions=$(abspath tests/lsan.supp):print_suppressions=0 OMP_NUM_THREADS=2 prove -j2 $^
prove-ubsan: $(UNIT)
	$(Q)UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2 prove -j2 $^
# setarch: the thread sanitizer of older compilers cannot start under strong address randomisation; UCX
# (below MPICH) hooks madvise, which the sanitizer meets before a thread is ready
prove-tsan: $(TSAN_UNIT) $(TSAN_RANKS) $(if $(TSAN_MPI),$(BUILD)/tests/mpi/launch_hello)
	$(Q)export KOLO_BUILD='$(abspath $(BUILD))'; \
	  UCX_MEM_MMAP_HOOK_MODE=none OMP_NUM_THREADS=1 \
	  TSAN_OPTIONS="suppressions=$(abspath tests/tsan.supp) halt_on_error=1 history_size=7 \
                allocator_may_return_null=1" \
	  $$(setarch "$$(uname -m)" -R true 2>/dev/null && echo setarch "$$(uname -m)" -R) prove -j2 $(TSAN_UNIT) \
	  $(TSAN_MPI)
	$(Q)UCX_MEM_MMAP_HOOK_MODE=none OMP_NUM_THREADS=1 \
	  TSAN_OPTIONS='suppressions=$(abspath tests/tsan_ranks.supp) history_size=7 report_thread_leaks=0' \
	  $$(setarch "$$(uname -m)" -R true 2>/dev/null && echo setarch "$$(uname -m)" -R) prove $(TSAN_RANKS)

# ---- readers of untrusted files: tests/fuzz/NAME.c is a harness for libFuzzer, or for tests/fuzz/mutate.c --
FUZZ_ALL     := $(filter-out input mutate,$(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/*.c))))
FUZZ         ?= $(FUZZ_ALL)
FUZZ_SECONDS ?= 600
FUZZ_CC      ?= clang
FUZZ_MAIN     = $(BUILD)/tests/fuzz/mutate.o
FUZZ_FLAGS   := -fsanitize=address,undefined -fno-sanitize-recover=undefined
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/input.o $$(FUZZ_MAIN) $(TOOL_PARTS) \
               $(call room_archive,ckpt) \
                       $(call room_archive,models) $(call archives_until,graph)
	$(linking)
tests: $(FUZZ_ALL:%=$(BUILD)/tests/fuzz/%)
fuzz:
	$(Q)command -v $(FUZZ_CC) >/dev/null || { echo \
	  'make fuzz needs clang with libFuzzer and the sanitizers (compiler-rt); FUZZ_CC= names it' >&2; exit 1; }
	$(again) programs
	+$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) MPI=0 PMIX=0 FUZZ_MAIN= FUZZ='$(FUZZ)' \
	  SANITIZE='$(FUZZ_FLAGS) -fsanitize=fuzzer-no-link' CFLAGS='-O1 -g -fno-omit-frame-pointer' \
	  LDFLAGS=-fsanitize=fuzzer fuzzers
	$(Q)KOLO_BUILD='$(abspath $(BUILD))' FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh $(FUZZ)
fuzzers: $(FUZZ:%=$(BUILD)/tests/fuzz/%)

# ---- lint --------------------------------------------------------------------------------------------------
C_FILES = $(sort $(wildcard include/*/*.h src/*/*.[ch] src/*/*/*.[ch] hdf5_tools/*.[ch] \
               hdf5_tools/*/*.[ch] tests/*.h tests/*/*.[ch]))
lint:
	$(Q)prove $(sort $(wildcard tests/lint/*.t))
	$(Q)if command -v clang-format >/dev/null; then clang-format --dry-run -Werror $(C_FILES); \
	  else echo 'clang-format is missing: layout not checked'; fi
format:
	$(Q)clang-format -i $(C_FILES)

# ---- installation ------------------------------------------------------------------------------------------
MAN        := $(BUILD)/share/man/man1/kolo.1
TOOL_MAN   := $(patsubst $(BUILD)/bin/%,$(BUILD)/share/man/man1/%.1,$(filter-out %/kolo,$(PROGRAMS)))
# of the public headers, and of each function in them; the last file written stands for all
HEADERS    := $(sort $(wildcard include/kolo/*.h))
MAN3       := $(BUILD)/share/man/man3/made
$(MAN3): $(HEADERS) share/setup/man3.sh VERSION
	$(call say,GEN,$(@D))
	$(Q)share/setup/man3.sh '$(VERSION)' $(@D) $(HEADERS) && touch $@
# of every program, where bash, zsh and fish look below a prefix
COMPLETION := $(foreach p,$(notdir $(PROGRAMS)),$(BUILD)/share/bash-completion/completions/$p \
               $(BUILD)/share/zsh/site-functions/_$p \
                $(BUILD)/share/fish/vendor_completions.d/$p.fish)
manuals: $(MAN) $(TOOL_MAN) $(MAN3) $(COMPLETION)
# the reference below docs/ is kept with the sources; tests/docs/reference.t holds it against the programs
docs: manuals
	$(call say,GEN,docs/reference)
	$(Q)share/setup/reference.sh '$(BUILD)' docs/reference
$(MAN): $(BUILD)/bin/kolo
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)$< help --man > $@
# the page of a packing tool is its --help, word by word
$(BUILD)/share/man/man1/kolo-%.1: $(BUILD)/bin/kolo-%
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q){ printf '.TH KOLO-%s 1 "" "kolo $(VERSION)"\n.SH NAME\n' $$(echo $* | tr a-z A-Z); \
	  printf 'kolo-%s \\- data sets of kolo\n.SH DESCRIPTION\n.nf\n' $*; \
	  $< --help | sed "s/\\\\/\\\\e/g; s/-/\\\\-/g; s/^[.']/\\\\\&&/"; } > $@
# $1: shell, $2: path
define completion_rule
$(BUILD)/share/$2: $(BUILD)/bin/% share/setup/completion.sh share/setup/completion.$1.in \
               $(wildcard share/recipes/*.yaml)
	$$(call say,GEN,$$@)
	@mkdir -p $$(@D)
	$$(Q)share/setup/completion.sh $1 $$< > $$@
endef
$(eval $(call completion_rule,bash,bash-completion/completions/%))
$(eval $(call completion_rule,zsh,zsh/site-functions/_%))
$(eval $(call completion_rule,fish,fish/vendor_completions.d/%.fish))
install: programs manuals
	$(Q)share/setup/install.sh install '$(DESTDIR)$(PREFIX)' '$(BUILD)' '$(VERSION)' '$(abspath $(PREFIX))'
uninstall:
	$(Q)share/setup/install.sh uninstall '$(DESTDIR)$(PREFIX)' '$(BUILD)' '$(VERSION)'
dist:
	@mkdir -p $(BUILD)
	$(Q)git archive --format=tar.gz --prefix=kolo-$(VERSION)/ -o $(BUILD)/kolo-$(VERSION).tar.gz HEAD
	@echo $(BUILD)/kolo-$(VERSION).tar.gz
# of what is built here, for this release of Debian or Ubuntu
deb: programs manuals
	$(Q)share/setup/deb.sh '$(BUILD)' '$(VERSION)' '$(BUILD)'
# what the programs, and the GPU half where it is built, load
sbom: programs
	$(Q)share/setup/sbom.sh '$(VERSION)' $(PROGRAMS) $(wildcard $(BUILD)/lib/libkolo_*.so) \
	  > $(BUILD)/kolo-$(VERSION).cdx.json
	@echo $(BUILD)/kolo-$(VERSION).cdx.json
clean distclean:
	$(Q)rm -rf '$(BUILD)'

define HELP
Targets
  all          the programs, in $(BUILD)/bin (the default)
  run          installs what is missing, builds, and shows a training on a private two-node Slurm
  check        installs what is missing, builds, runs every test but those that take minutes each
  check-long   those; TESTS='name name': only some
  check-scale  collectives on simulated clusters of 512 and 1,024 ranks, by SimGrid
  bench        speed on this machine; bench-NAME runs tests/peers/NAME.sh
  peers        installs the Python packages that bench-NAME and check-long compare with, some GB in
               $(BUILD)/peers
  asan ubsan tsan   unit tests under a sanitizer, built in $(BUILD)/asan and so on
  fuzz         readers of files under clang's libFuzzer, $(FUZZ_SECONDS) s each: FUZZ_SECONDS=, FUZZ=name;
               crashes in $(BUILD)/fuzz/crashes
  lint format  rules of the sources; format lays them out by clang-format
  docs         manual pages and completions in $(BUILD)/share, and docs/reference anew from the programs
  install uninstall   PREFIX=$(PREFIX) DESTDIR=; the installed tree may be moved
  dist         a source archive of the last commit; the same commit gives the same bytes
  deb          kolo_VERSION_ARCH.deb of this build, for this release of Debian or Ubuntu
  sbom         a bill of materials (CycloneDX) of the libraries that the programs load
  bundle       a folder, and an archive of it, that runs on another Linux; tests/gpu/run in it does what
               needs a GPU (tests/gpu/README.md)
  deps         only installs what is missing
  clean        removes $(BUILD)
Knobs (make KNOB=value)
  CC CFLAGS LDFLAGS ARCH   compiler and flags; ARCH is -march=x86-64-v2 on x86, faster code is chosen at
                           run time
  MPI=0 PMIX=0             build without
  TIFF=0 WEBP=0            without images of these kinds, which are read where libtiff and libwebp are found
  LMDB=0                   without liblmdb, which only the test of the reader of LMDB writes with
  ONNX=0                   without protobuf-c: `kolo export FILE.onnx` is then refused
  XML=0                    without libxml2: `kolo-pack --source voc-xml` is then refused
  CUDA=1                   also lib/libkolo_cuda.so, which the programs open when a GPU is chosen; NCCL=0:
                           it does without NCCL
  CUDA_ARCH='80 90 100'    compute capabilities that it holds code for; later GPUs compile the last one's PTX
                           (NVCC_GENCODE: your own words); bundle: 90
  NVCC NVCCFLAGS CXX       its compilers
  MPI_HOME PMIX_HOME HDF5_HOME CUDA_HOME CUDNN_HOME NCCL_HOME DNNL_HOME HWLOC_HOME JPEG_HOME PNG_HOME
  ZLIB_HOME YAML_HOME CJSON_HOME TIFF_HOME WEBP_HOME LMDB_HOME ONNX_HOME XML_HOME
                           where a library is, if neither the compiler nor pkg-config finds it
  BUILD=folder             where objects and programs go
  V=1                      show every command
  WERROR=1                 a warning of the compiler ends the build, as in .ci/run
  YES=1                    `run`, `check`, `deps` may install packages by sudo without asking
endef
help:
	$(info $(HELP))@:
