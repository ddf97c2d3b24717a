#!/usr/bin/env bash
# sbom.sh VERSION FILE...: a bill of materials (CycloneDX 1.5, JSON) of the programs and libraries FILE: every
# shared library that they load, of which package and version it is, and its checksum. The same files give the
# same bytes: no time, no random number.
set -euo pipefail
export LC_ALL=C
version=$1
shift
sum() { sha256sum "$1" | cut -d ' ' -f 1; }
# "PACKAGE VERSION" of the system's package that holds a file; nothing where none does
package_of() {
    local name
    if command -v dpkg-query > /dev/null; then
        # the file's own name may be that before /lib became a link to /usr/lib
        name=$(dpkg-query -S "$1" 2> /dev/null || dpkg-query -S "${1#/usr}" 2> /dev/null) || return 0
        dpkg-query -W -f '${Package} ${Version}\n' "${name%%: *}" 2> /dev/null | head -n 1
    elif command -v rpm > /dev/null; then
        rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}\n' "$1" 2> /dev/null | head -n 1
    fi
}
libraries=$(for file; do ldd "$file"; done |
    sed -nE 's|^([^/]* => )?[[:space:]]*(/[^ ]*) \(.*|\2|p' | sort -u)
printf '{"bomFormat":"CycloneDX","specVersion":"1.5","version":1,\n'
printf '"metadata":{"component":{"type":"application","bom-ref":"kolo","name":"kolo","version":"%s"}},\n' \
    "$version"
printf '"components":['
comma=""
for path in $libraries; do
    real=$(readlink -f "$path")
    read -r package release <<< "$(package_of "$real")" || true
    printf '%s\n{"type":"library","bom-ref":"%s","name":"%s","version":"%s",' "$comma" "${path##*/}" \
        "${path##*/}" "${release:-unknown}"
    printf '"hashes":[{"alg":"SHA-256","content":"%s"}],"properties":' "$(sum "$real")"
    printf '[{"name":"package","value":"%s"},{"name":"file","value":"%s"}]}' "${package:-none}" \
        "${real##*/}"
    comma=,
done
printf '\n],\n"dependencies":[{"ref":"kolo","dependsOn":['
comma=""
for path in $libraries; do printf '%s"%s"' "$comma" "${path##*/}" && comma=,; done
printf ']}]}\n'
