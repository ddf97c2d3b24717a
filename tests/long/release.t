#!/usr/bin/env bash
# What is handed on: a source archive that is the same wherever it is made, and the list of what is loaded.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need git python3 readelf
git rev-parse HEAD > /dev/null 2>&1 || skip_all "no repository"
(umask 022 && TZ=UTC make -s dist BUILD="$ROOM/a" > /dev/null)
git clone -q . "$ROOM/clone" && sleep 1
(cd "$ROOM/clone" && umask 077 && TZ=Asia/Tokyo LC_ALL=C make -s dist BUILD="$ROOM/b" > /dev/null)
archive=kolo-$(cat VERSION).tar.gz
[ -s "$ROOM/a/$archive" ] && cmp "$ROOM/a/$archive" "$ROOM/b/$archive"
ok $? "make dist here and in a clone, at another time, umask and zone: the same bytes"

programs=$BUILD/bin/kolo-pack
share/setup/sbom.sh 1.2 "$programs" > "$ROOM/one.json"
ok $? "a bill of materials is written"
share/setup/sbom.sh 1.2 "$programs" | cmp - "$ROOM/one.json"
ok $? "and twice the same"
# what each program asks for itself, by another tool, and checksums by another library
readelf -d "$programs" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u > "$ROOM/needed"
python3 - "$ROOM/one.json" "$ROOM/needed" "$programs" << 'END'
import hashlib, json, subprocess, sys
bill = json.load(open(sys.argv[1]))
assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
assert bill["metadata"]["component"]["version"] == "1.2"
parts = {c["name"]: c for c in bill["components"]}
needed = open(sys.argv[2]).read().split()
assert needed and set(needed) <= set(parts), set(needed) - set(parts)
assert set(bill["dependencies"][0]["dependsOn"]) == set(parts)
for line in subprocess.run(["ldd", sys.argv[3]], capture_output=True, text=True).stdout.splitlines():
    if "=> /" in line:
        name, path = line.split()[0], line.split()[2]
        want = hashlib.sha256(open(path, "rb").read()).hexdigest()
        assert parts[name]["hashes"][0]["content"] == want, name
END
ok $? "it names every library that the programs need, with its SHA-256"
done_testing
