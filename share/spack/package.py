# Kolo in Spack: `spack repo create` a repository, copy this file to its packages/kolo/package.py, and
# `spack install kolo`. Without a release archive: `spack dev-build kolo@VERSION` in the source tree.
from spack.package import *

try:  # where Spack has it from 1.0 on; before, the line above brings it
    from spack_repo.builtin.build_systems.makefile import MakefilePackage
except ImportError:
    pass


class Kolo(MakefilePackage):
    """Trains vision networks on Slurm supercomputers from one C program: packing of images, training,
    evaluation, export, and collectives for other MPI programs."""

    homepage = "https://example.org/kolo"  # EDIT: where your site keeps the archive of `make dist`
    url = "https://example.org/kolo/kolo-0.1.0.tar.gz"
    license("BSD-3-Clause")

    # EDIT: sha256sum of that archive
    version("0.1.0", sha256="0" * 64)

    variant("mpi", default=True, description="Several nodes, by MPI")
    variant("pmix", default=True, description="Starts by srun --mpi=pmix")
    variant("cuda", default=False, description="NVIDIA GPUs")
    variant("nccl", default=True, when="+cuda", description="Sums between GPUs by NCCL")
    variant("tiff", default=True, description="TIFF images")
    variant("webp", default=True, description="WebP images")
    variant("lmdb", default=True, description="Data in LMDB")
    variant("onnx", default=True, description="Export as ONNX")
    variant("xml", default=True, description="Annotations in XML")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hdf5~mpi")
    depends_on("onednn@2:3")
    depends_on("hwloc")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("zlib-api")
    depends_on("libyaml")
    depends_on("cjson")
    depends_on("mpi", when="+mpi")
    depends_on("pmix", when="+pmix")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn", when="+cuda")
    depends_on("nccl", when="+cuda+nccl")
    depends_on("libtiff", when="+tiff")
    depends_on("libwebp", when="+webp")
    depends_on("lmdb", when="+lmdb")
    depends_on("protobuf-c", when="+onnx")
    depends_on("libxml2", when="+xml")

    def knobs(self, spec, prefix):
        names = ("mpi", "pmix", "cuda", "tiff", "webp", "lmdb", "onnx", "xml")
        knobs = [f"{name.upper()}={int(spec.satisfies('+' + name))}" for name in names]
        return knobs + [f"NCCL={int(spec.satisfies('+nccl'))}", f"PREFIX={prefix}"]

    def build(self, spec, prefix):
        make("all", "manuals", *self.knobs(spec, prefix))

    def install(self, spec, prefix):
        make("install", *self.knobs(spec, prefix))

    def setup_run_environment(self, env):
        env.set("KOLO_ROOT", self.prefix)
