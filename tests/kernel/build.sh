#!/usr/bin/env bash
# Debian's stock kernel and the modules of the guest, made in a folder: build.sh FOLDER
# FOLDER/KERNEL tells the kernel's version; what is there already is not made again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/debs" && cd "$1"
work=$PWD

depends() { apt-cache depends "$1" | sed -n "s/.*Depends: \($2\)$/\1/p" | head -1; }

image=$(depends linux-image-amd64 'linux-image-.*')
if [ -z "$image" ]; then
  apt-get update -qq
  image=$(depends linux-image-amd64 'linux-image-.*')
fi
version=${image#linux-image-}
source=linux-source-$(echo "$version" | cut -d. -f1,2)
headers="linux-headers-$version $(depends "linux-headers-$version" 'linux-headers-.*-common')"
headers="$headers $(depends "linux-headers-$version" 'linux-kbuild-.*')"

fetch() {
  local missing=()
  for package in "$@"; do
    compgen -G "debs/${package}_*.deb" >/dev/null || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] || (cd debs && apt-get download -qq "${missing[@]}" 2>/dev/null)
}

unpack_image() {
  dpkg-deb --fsys-tarfile debs/"$image"_*.deb | tar -x --wildcards './boot/vmlinuz*' \
    '*/virtio/*' '*/9p/*' '*/netfs/*' '*/fscache/*' '*/drivers/cpufreq/*' '*/drivers/devfreq/*'
}

unpack_headers() {
  for package in $headers; do dpkg -x debs/"$package"_*.deb headers; done
  # The headers look for one another below /usr/src.
  sed -i "s#include /usr/src/#include $work/headers/usr/src/#" "$tree/Makefile"
}

unpack_governors() {
  # tar stops at the last of these, early in the archive: the pipe before it breaks, which is fine.
  dpkg-deb --fsys-tarfile debs/"$source"_*.deb 2>/dev/null |
    tar -xO "./usr/src/$source.tar.xz" 2>/dev/null |
    tar -xJ --occurrence=1 --strip-components=3 -C module \
      "$source"/drivers/devfreq/governor{.h,_userspace.c,_performance.c} || true
  test -s module/governor_userspace.c
}

tree=$work/headers/usr/src/linux-headers-$version
if [ "$(cat KERNEL 2>/dev/null)" != "$version" ]; then
  rm -rf boot lib headers module KERNEL
  mkdir -p module
  # shellcheck disable=SC2086 # a list of names
  fetch "$image" "$source" $headers
  unpack_image & unpack_headers & unpack_governors
  wait
  echo "$version" > KERNEL
fi
cp -u "$here"/module/* module/
make -s -C "$tree" M="$work/module" CONFIG_DEBUG_INFO_BTF_MODULES= modules
