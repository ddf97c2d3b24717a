#!/usr/bin/env bash
# What packages Kolo elsewhere, each by the other's own reader: EasyBuild parses the easyconfig, lintian
# finds no error in the .deb, which can be unpacked and run, rpmspec reads the spec, Python the Spack package;
# all are of this version and know the knobs of make.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo python3
version=$(cat VERSION)

# --- Debian
if command -v lintian > /dev/null && command -v dpkg-shlibdeps > /dev/null; then
    make -s BUILD="$BUILD" WERROR="$(grep -c -e -Werror "$BUILD/flags")" manuals > "$ROOM/log" 2>&1
    share/setup/deb.sh "$BUILD" "$version" "$ROOM" > "$ROOM/log" 2>&1
    ok $? "deb.sh makes a package" "$ROOM/log"
    deb=$(find "$ROOM" -name "kolo_${version}_*.deb")
    lintian --fail-on error "$deb" > "$ROOM/log" 2>&1
    none "lintian has no error" "$(grep '^E:' "$ROOM/log")"
    dpkg-deb -x "$deb" "$ROOM/root" && "$ROOM/root/usr/bin/kolo" version > "$ROOM/log" 2>&1
    ok $? "what is in it runs" "$ROOM/log"
    dpkg-deb -f "$deb" Depends > "$ROOM/depends"
    like "$ROOM/depends" 'libhdf5[^ ]* .*libhwloc' "it depends on the packages whose libraries are loaded"
    mkdir "$ROOM/again" && share/setup/deb.sh "$BUILD" "$version" "$ROOM/again" > "$ROOM/log" 2>&1
    cmp "$deb" "$ROOM/again/${deb##*/}"
    ok $? "made twice, the same bytes"
else
    skip "no lintian or dpkg-dev"
fi

# --- RPM
if command -v rpmspec > /dev/null; then
    is "$(rpmspec -q --qf '%{name} %{version} ' share/rpm/kolo.spec 2> "$ROOM/log")" "kolo $version " \
        "rpmspec reads the spec, of this version" || diag < "$ROOM/log"
    is "$(rpmspec -P share/rpm/kolo.spec 2> /dev/null | grep -o 'MPI=. CUDA=.' | sort -u)" "MPI=1 CUDA=0" \
        "  with the knobs of make"
else
    skip "no rpmspec"
fi
# its dependencies have other names here, so it is built without asking for them
if command -v rpmbuild > /dev/null && command -v cpio > /dev/null && git rev-parse HEAD > /dev/null 2>&1; then
    make -s dist BUILD="$ROOM/dist" > "$ROOM/log" 2>&1
    env -u MAKEFLAGS -u MAKELEVEL rpmbuild -tb --nodeps --define "_topdir $ROOM/rpm" \
        "$ROOM/dist/kolo-$version.tar.gz" > "$ROOM/log" 2>&1
    ok $? "rpmbuild makes a package of the archive of make dist" || tail -n 20 "$ROOM/log" | diag
    rpm=$(find "$ROOM/rpm/RPMS" -name "kolo-$version-*.rpm")
    mkdir "$ROOM/rpm/root" && rpm2cpio "$rpm" | (cd "$ROOM/rpm/root" && cpio -idm --quiet) &&
        "$ROOM/rpm/root/usr/bin/kolo" version > "$ROOM/log" 2>&1
    ok $? "what is in it runs" "$ROOM/log"
    make -s install BUILD="$BUILD" DESTDIR="$ROOM/plain" PREFIX=/usr > "$ROOM/log" 2>&1
    none "it holds what make install puts there" \
        "$(diff <(cd "$ROOM/plain/usr" && find . ! -type d | sed 's/\.gz$//' | sort) \
            <(cd "$ROOM/rpm/root/usr" && find . ! -type d | sed 's/\.gz$//' | sort) | grep '^<')"
else
    skip "no rpmbuild or cpio, or no repository"
fi

# --- EasyBuild
. "$TOP/tests/peers/python.sh"
if peers_install easybuild > "$ROOM/log" 2>&1; then
    cat > "$ROOM/parse.py" << 'END'
import sys
from easybuild.framework.easyconfig.parser import EasyConfigParser
from easybuild.tools.options import set_up_configuration
set_up_configuration(args=["--allow-use-as-root-and-accept-consequences", "--modules-tool=EnvironmentModules",
                           "--module-syntax=Tcl"], silent=True)
d = EasyConfigParser(sys.argv[1]).get_config_dict()
print(d["name"], d["version"], d["easyblock"], d["sources"][0])
missing = [k for k in ("homepage", "description", "toolchain", "moduleclass") if not d.get(k)]
if missing: print("missing", missing)
END
    is "$("$PYTHON" "$ROOM/parse.py" share/easybuild/Kolo-*.eb 2> "$ROOM/log")" \
        "Kolo $version MakeCp kolo-%(version)s.tar.gz" "EasyBuild parses the easyconfig, of this version" ||
        diag < "$ROOM/log"
else
    skip "no EasyBuild from PyPI"
fi

# --- Spack: its own audit, where SPACK_ROOT is a copy; else, and for what it calls make with, a stand-in of
# its package API, as it is up to 0.23 and from 1.0 on
if [ -x "${SPACK_ROOT:-}/bin/spack" ]; then
    mkdir -p "$ROOM/repo/packages/kolo" "$ROOM/scope"
    printf 'repo:\n  namespace: koloaudit\n' > "$ROOM/repo/repo.yaml"
    cp share/spack/package.py "$ROOM/repo/packages/kolo"
    # shellcheck disable=SC2016 # Spack's own $spack
    printf 'repos:\n- %s\n- $spack/var/spack/repos/builtin\n' "$ROOM/repo" > "$ROOM/scope/repos.yaml"
    SPACK_USER_CACHE_PATH=$ROOM/spack SPACK_DISABLE_LOCAL_CONFIG=1 \
        timeout 900 "$SPACK_ROOT/bin/spack" -C "$ROOM/scope" audit packages kolo > "$ROOM/log" 2>&1
    ok $? "spack audit packages kolo: no issue" "$ROOM/log"
    like "$ROOM/log" '^PKG-DIRECTIVES: passed' "  of its directives, either"
else
    skip "no SPACK_ROOT, a copy of Spack"
fi
for release in 0 1; do
    none "the Spack package, Spack $release: Python reads it; its knobs are make's, its version this one" \
        "$(RELEASE=$release python3 - 2>&1 << 'END'
import os, re, sys, types
seen = {"version": [], "variant": []}
def module(name):
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]
module("spack")
api = module("spack.package")
def note(kind): return lambda name, *a, **k: seen.setdefault(kind, []).append(name)
for kind in ("version", "variant", "depends_on", "license"): setattr(api, kind, note(kind))
if os.environ["RELEASE"] == "0": api.MakefilePackage = object
else:
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"): module(name)
    module("spack_repo.builtin.build_systems.makefile").MakefilePackage = object
calls = []
api.make = lambda *words: calls.append(words)
space = {}
exec(open("share/spack/package.py").read(), space)
class Spec:
    def satisfies(self, what): return what != "+cuda"
package = space["Kolo"]()
package.build(Spec(), "/p")
package.install(Spec(), "/p")
make = open("GNUmakefile").read()
knobs = [w for call in calls for w in call if "=" in w]
for knob in knobs:
    if not re.search("^%s +\\?=" % knob.split("=")[0], make, re.M): print(knob, "is no knob")
if "CUDA=0" not in knobs or "MPI=1" not in knobs or "PREFIX=/p" not in knobs: print(knobs)
if seen["version"] != [open("VERSION").read().strip()]: print(seen["version"])
END
        )"
done
# SPACK_PACKAGES: a copy of spack/spack-packages, whose packages Spack has from 1.0 on
builtin=${SPACK_PACKAGES:-}/repos/spack_repo/builtin
if [ -d "$builtin/packages" ]; then
    missing=
    while read -r name variants; do
        folder=$builtin/packages/${name//-/_}/package.py
        [ -e "$folder" ] || grep -rqE "provides\(\"${name}[\"@]" "$builtin/packages" || missing+=" $name"
        for variant in $variants; do
            grep -qE "^ +(variant\()?\"$variant\"," "$folder" || missing+=" $name+$variant"
        done
    done < <(sed -n 's/.*depends_on("\([^"]*\)".*/\1/p' share/spack/package.py |
        sed -E 's/@[0-9:.]+//; s/[~+]/ /g')
    none "Spack 1: what the package depends on is there, with the variants it asks for" "$missing"
    like "$builtin/build_systems/makefile.py" '^class MakefilePackage' "  and so is what it is made of"
else
    skip "no SPACK_PACKAGES, a copy of spack/spack-packages"
fi
is "$(sed -n 's/^version: //p' CITATION.cff)" "$version" "CITATION.cff is of this version"
like CHANGELOG.md "^## $version" "CHANGELOG.md speaks of this version"
done_testing
