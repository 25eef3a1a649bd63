#!/bin/bash
# Runs the kernel tests under Bochs, since few machines at hand have AVX-512.
#
#   __test__/emulate/avx512.sh [--with PATH]... TEST_BINARY [ARGUMENT...]
#
# For example, with the binary that `cargo test --lib --no-run` names:
#
#   __test__/emulate/avx512.sh target/debug/deps/clutor-0123456789abcdef kernels:: --test-threads=1
#
# Boots Debian's kernel on an emulated Ice Lake with an initial file system that holds the test binary and the files and
# folders given by --with, each at its absolute path; prints what the tests print, and exits with their status, or with 124
# where nothing came back in TIMEOUT seconds (1200).
# BOCHS names the emulator. One built without its debugger and with the `nogui` display is several times as fast:
#   ./configure --enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex --enable-all-optimizations \
#     --disable-debugger --disable-plugins --disable-docbook --enable-pci --with-nogui
set -euo pipefail

die() { echo "avx512.sh: $*" >&2; exit 2; }

with=()
while [ "${1:-}" = --with ]; do
  [ -e "${2:-}" ] || die "--with needs a file or folder; there is no '${2:-}'"
  # As a test names it: no link is followed.
  with+=("$(realpath -s "$2")")
  shift 2
done
[ $# -ge 1 ] || die "usage: avx512.sh [--with PATH]... TEST_BINARY [ARGUMENT...]"
binary=$(realpath "$1"); shift
[ -x "$binary" ] || die "$binary is not an executable file"
bochs=${BOCHS:-bochs}
isolinux=/usr/lib/ISOLINUX/isolinux.bin
ldlinux=/usr/lib/syslinux/modules/bios/ldlinux.c32
bios=/usr/share/bochs/BIOS-bochs-latest
vga=/usr/share/bochs/VGABIOS-lgpl-latest
missing=()
command -v "$bochs" >/dev/null || missing+=(bochs)
for need in $bios:bochsbios $vga:vgabios $isolinux:isolinux $ldlinux:syslinux-common /bin/busybox:busybox-static \
    /usr/bin/xorriso:xorriso /usr/bin/cpio:cpio; do
  [ -e "${need%%:*}" ] || missing+=("${need##*:}")
done
[ ${#missing[@]} -eq 0 ] || die "missing Debian packages: ${missing[*]}"
ldd /bin/busybox >/dev/null 2>&1 && die "/bin/busybox is not static; install the Debian package busybox-static"

cache=$(cd "$(dirname "$0")/../.." && pwd)/target/emulate
mkdir -p "$cache"

# The kernel is unpacked from its package, not installed.
if [ ! -e "$cache/vmlinuz" ]; then
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
  [ -n "$package" ] || die "no package linux-image-cloud-amd64; run apt-get update"
  (cd "$cache" && apt-get download -q "$package" >&2 && dpkg -x "$package"_*.deb kernel)
  cp "$cache"/kernel/boot/vmlinuz-* "$cache/vmlinuz"
  rm -rf "$cache/kernel" "$cache"/*.deb
fi

run=$(mktemp -d "$cache/run.XXXXXX")
emulator=
# Only the process that this script started is ended, by its id.
trap '[ -z "$emulator" ] || kill "$emulator" 2>/dev/null || true; rm -rf "$run"' EXIT

mkdir -p "$run"/root/{bin,proc,sys,dev,tmp} "$run/iso"
cp /bin/busybox "$run/root/bin/busybox"
strip -o "$run/root/test" "$binary"
{ ldd "$binary" 2>/dev/null || true; } | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p' | while read -r library; do
  mkdir -p "$run/root$(dirname "$library")"
  cp -L "$library" "$run/root$library"
done
for path in "${with[@]}"; do
  mkdir -p "$run/root$(dirname "$path")"
  cp -aL "$path" "$run/root$(dirname "$path")/"
done
# Changing a terminal's settings waits until all has been sent.
cat > "$run/root/init" <<INIT
#!/bin/busybox sh
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
busybox stty -F /dev/ttyS0 115200 raw
cd /tmp
exec > /dev/ttyS0 2>&1
echo "=== tests"
RUST_BACKTRACE=0 /test $(printf '%q ' "$@")
echo "=== status \$?"
busybox stty -F /dev/ttyS0 57600
busybox poweroff -f
INIT
chmod +x "$run/root/init"
(cd "$run/root" && find . | cpio --quiet -o -H newc | gzip -1) > "$run/iso/initrd"
cp "$cache/vmlinuz" "$isolinux" "$ldlinux" "$run/iso/"
# Bochs describes the XSAVE area of protection keys wrongly, and with all of its processor's features the kernel hangs before
# it starts /init; those cleared here have nothing to do with AVX-512.
cat > "$run/iso/isolinux.cfg" <<CONFIG
default tests
prompt 0
label tests
 kernel vmlinuz
 append initrd=initrd console=ttyS0 quiet loglevel=3 tsc=reliable mitigations=off nokaslr noreplace-smp nogbpages nopku noxsaves nofsgsbase nosmap nosmep nopcid noinvpcid clearcpuid=rdpid,fsrm,erms,umip,smap,smep,pcid,invpcid,clwb,clflushopt
CONFIG
xorriso -as mkisofs -quiet -o "$run/tests.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
  -boot-info-table "$run/iso" 2>/dev/null

# A build with the debugger stops before the first instruction; Debian's has that and no display but one for VNC.
options=(-q -f "$run/bochsrc")
display='nogui'
if "$bochs" --help 2>&1 | grep -q -e '-rc '; then
  echo c > "$run/continue"
  options+=(-rc "$run/continue")
  display='rfb, options="timeout=0"'
fi
cat > "$run/bochsrc" <<CONFIG
display_library: $display
megs: 512
cpu: model=corei7_icelake_u, count=1, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1
romimage: file=$bios
vgaromimage: file=$vga
ata0-master: type=cdrom, path=$run/tests.iso, status=inserted
boot: cdrom
clock: sync=none
com1: enabled=1, mode=file, dev=$run/serial
log: $run/log
panic: action=fatal
error: action=ignore
info: action=ignore
CONFIG

serial() { tr -d '\r' < "$run/serial" 2>/dev/null || true; }
SECONDS=0
"$bochs" "${options[@]}" </dev/null >"$run/out" 2>&1 &
emulator=$!
while kill -0 "$emulator" 2>/dev/null; do
  grep -q -a '^=== status' "$run/serial" 2>/dev/null && break
  if [ "$SECONDS" -ge "${TIMEOUT:-1200}" ]; then
    serial | tail -n 40
    echo "avx512.sh: no result after $SECONDS s" >&2
    exit 124
  fi
  sleep 1
done
sleep 1
serial | sed -n '/^=== tests/,/^=== status/p' | grep -v '^==='
status=$(serial | sed -n 's/^=== status \([0-9]*\).*/\1/p')
if [ -z "$status" ]; then
  serial | tail -n 20 >&2
  tail -n 5 "$run/out" >&2
  die "the emulator ended before the tests did"
fi
echo "avx512.sh: status $status after $SECONDS s"
exit "$status"
