# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What the host-side scripts share: messages, the cache, locks, and the host's Debian mirror.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
CACHE=${CPUPEEK_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/cpupeek}

say() { printf 'cpupeek: %s\n' "$*" >&2; }
warn() { say "warning: $*"; }
die() {
	say "$*"
	exit 1
}

# shellcheck source=scripts/versions
. "$TOP/scripts/versions"

cache_ready() {
	case $CACHE in
	/*) ;;
	*) die "CPUPEEK_CACHE must be an absolute path, not '$CACHE'" ;;
	esac
	case $CACHE in
	*[[:space:]:#]*) die "the cache path '$CACHE' has a blank, colon or hash in it, which make cannot take: set CPUPEEK_CACHE to another folder" ;;
	esac
	mkdir -p "$CACHE/lock" "$CACHE/log" "$CACHE/tmp" "$CACHE/home" 2>/dev/null && [ -w "$CACHE/lock" ] ||
		die "cannot write to the cache $CACHE: make it writable for $(id -un), or set CPUPEEK_CACHE to a folder that is"
}

# need_space FOLDER GIB WHAT
need_space() {
	local free
	free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1048576) }')
	[ "$free" -ge "$2" ] ||
		die "$3 needs $2 GiB, and $1 has $free GiB free: make room there, or set ${4:-CPUPEEK_CACHE} to a folder on another disk"
}

# lock NAME [FD]: holds the lock until FD is closed or this process ends.
lock() {
	local fd=${2:-9}
	eval "exec $fd>\"\$CACHE/lock/\$1\""
	flock -n "$fd" && return
	say "waiting for another run that is making the same thing ($1)"
	flock "$fd"
}

# step N/M SECONDS TEXT COMMAND...: runs COMMAND with its output in a log and shows that it goes on.
# The status is COMMAND's; STEP_LOG is where the output went.
step() {
	local count=$1 about=$2 text=$3 status=0 ticker start=$SECONDS
	shift 3
	STEP_LOG=$CACHE/log/$(basename "$0")-$$-${count%%/*}.log
	say "$count $text, about $about s"
	(
		exec 8>&- 9>&-
		while sleep 15 && kill -0 $$ 2>/dev/null; do
			say "    $((SECONDS - start)) s of about $about s"
		done
	) &
	ticker=$!
	"$@" >"$STEP_LOG" 2>&1 8>&- 9>&- || status=$?
	kill "$ticker" 2>/dev/null
	wait "$ticker" 2>/dev/null || true
	[ $status -ne 0 ] || rm -f "$STEP_LOG"
	return $status
}

# The end of a failed step's log, then the sentence.
step_failed() {
	tail -n 15 "$STEP_LOG" | sed 's/^/    /' >&2
	die "$* (all of it: $STEP_LOG)"
}

# Lines "URI SUITE..." of the host's enabled one-line and deb822 sources.
apt_entries() {
	local etc=${CPUPEEK_APT_ETC:-/etc/apt} file
	for file in "$etc/sources.list" "$etc"/sources.list.d/*.list; do
		[ -r "$file" ] || continue
		sed -n 's/#.*//; s/^[[:space:]]*deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]*\)\{0,1\}//p' "$file" |
			awk 'NF >= 2 { print $1, $2 }'
	done
	for file in "$etc"/sources.list.d/*.sources; do
		[ -r "$file" ] || continue
		awk 'function flush() {
				if (types ~ /(^| )deb( |$)/ && tolower(enabled) != "no" && uris != "") {
					n = split(uris, list, " ")
					for (i = 1; i <= n; i++) print list[i], suites
				}
				types = uris = suites = enabled = field = ""
			}
			/^#/ { next }
			/^[[:space:]]*$/ { flush(); next }
			/^[^[:space:]]/ { field = tolower($1); $1 = "" }
			field == "types:" { types = types " " $0 }
			field == "uris:" { uris = uris " " $0 }
			field == "suites:" { suites = suites " " $0 }
			field == "enabled:" { enabled = enabled $1 $2 }
			END { flush() }' "$file"
	done
}

# The Debian mirror that the host itself uses; it serves the other suites too.
mirror() {
	local uri suites
	if [ -n "${CPUPEEK_MIRROR:-}" ]; then
		echo "${CPUPEEK_MIRROR%/}"
		return
	fi
	while read -r uri suites; do
		case " $suites " in
		*[a-z]-security*) continue ;;
		*" stable "* | *" testing "* | *" unstable "* | *" sid "* | *" bookworm"* | *" trixie"* | *" forky"* | *" duke"*) ;;
		*) continue ;;
		esac
		# Debian's cloud images name a file that lists mirrors.
		case $uri in
		mirror+file:*) uri=$(awk '/^[^#]/ { print $1; exit }' "${uri#mirror+file:}" 2>/dev/null) || continue ;;
		esac
		case $uri in
		http://* | https://* | file:/*)
			echo "${uri%/}"
			return
			;;
		esac
	done < <(apt_entries)
	die "the apt sources of this host name no Debian mirror: set CPUPEEK_MIRROR to one, for example CPUPEEK_MIRROR=http://MIRROR/debian"
}

# The host's proxy settings for apt, one "NAME VALUE" a line.
apt_proxies() {
	local value name
	for name in Acquire::http::Proxy Acquire::https::Proxy; do
		value=$(apt-config shell V "$name" 2>/dev/null | sed -n "s/^V='\(.*\)'$/\1/p")
		[ -z "$value" ] || echo "$name $value"
	done
}

# A key of 12 digits for what files say, their comments apart, and for standard input.
key_of() {
	{ grep -hv '^[[:space:]]*\(#.*\)\{0,1\}$' "$@" && cat; } | sha256sum | cut -c1-12
}

# Where the tool root of a line is, whether it exists or not: its name says what went into it.
root_path() {
	local key
	line_settings "$1"
	key=$(echo "$SUITE" "$GCC" "$TOOL_PACKAGES" | key_of "$TOP/scripts/toolroot")
	echo "$CACHE/root/$1-$key"
}
