#!/bin/bash
# Builds the engine for 64-bit ARM and runs its tests under QEMU, on an x86-64 Debian or Ubuntu, as root.
#
#   __test__/emulate/aarch64.sh [CARGO TEST ARGUMENT...]
#
# Without arguments: the kernel tests, then those of equality and of the recorded answers. For example:
#
#   CPU=cortex-a72 __test__/emulate/aarch64.sh --lib -- kernels::
#
# CPU names the processor: `max` (the default) has all instructions, `neoverse-n1` the dot product without matrix products,
# `cortex-a72` neither. SUITE is the Debian suite (sid) whose compiler has a standard library for arm64; its packages are
# unpacked, not installed, into ROOT (target/emulate/aarch64), 2 GB, in which the tests are then built and run. The mirror
# is that of the machine's own package sources, or MIRROR.
set -euo pipefail

die() { echo "aarch64.sh: $*" >&2; exit 2; }

[ "$(id -u)" = 0 ] || die "must run as root, to mount folders and change the root"
project=$(cd "$(dirname "$0")/../.." && pwd)
root=${ROOT:-$project/target/emulate/aarch64}
suite=${SUITE:-sid}
packages=(
  rustc cargo libstd-rust-dev:amd64 libstd-rust-dev:arm64
  gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
  base-files bash coreutils ca-certificates
)

# A package manager's state of its own: the machine's is neither read nor changed.
if [ ! -e "$root/ready" ]; then
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$keyring" ] || die "missing Debian package: debian-archive-keyring"
  mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/\?$' | head -n 1)}
  [ -n "$mirror" ] || die "no Debian mirror among the package sources; name one in MIRROR"
  apt=$root/apt
  mkdir -p "$apt"/etc/apt/{preferences.d,apt.conf.d} "$apt"/var/lib/{apt/lists/partial,dpkg} \
    "$apt/var/cache/apt/archives/partial"
  : > "$apt/var/lib/dpkg/status"
  echo "deb [signed-by=$keyring] $mirror $suite main" > "$apt/etc/apt/sources.list"
  cat > "$apt/apt.conf" <<CONFIG
Dir "$apt";
Dir::State::status "$apt/var/lib/dpkg/status";
APT::Architecture "amd64";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
CONFIG
  APT_CONFIG=$apt/apt.conf apt-get update -q >&2
  APT_CONFIG=$apt/apt.conf apt-get install -q -y --download-only --no-install-recommends "${packages[@]}" >&2
  for package in "$apt"/var/cache/apt/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
  done
  # What the packages' scripts would have set up.
  ln -sf gcc "$root/usr/bin/cc"
  rm -rf "$apt/var/cache"
  touch "$root/ready"
fi

export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
mkdir -p "$CARGO_HOME" "$root"/{dev,proc,tmp,project,cargo,etc/ssl/certs}
cp -L "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"

# The mounts are seen by this command alone and end with it.
test_in_root() {
  unshare --mount bash -euc '
    root=$1; shift
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    mount --bind "$1" "$root/project"; shift
    mount --bind "$CARGO_HOME" "$root/cargo"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp CARGO_HOME=/cargo CARGO_TERM_COLOR=never \
      SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
      CARGO_TARGET_DIR=/project/target/emulate/aarch64-build \
      CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
      CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu ${CPU:-max}" \
      bash -c "cd /project && exec cargo test --locked --target aarch64-unknown-linux-gnu \"\$@\"" cargo "$@"
  ' bash "$root" "$project" "$@"
}

if [ $# -gt 0 ]; then
  test_in_root "$@"
else
  test_in_root --lib -- kernels::
  test_in_root --test equality --test golden
fi
