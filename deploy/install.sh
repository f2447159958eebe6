#!/bin/sh
# Install pykoclaw-acp's systemd units, for you or for this machine, or take them away again. May be run any number of
# times. It touches no conversation: a daemon that runs hands over to the service, and its turns go on.
set -eu

usage() {
    cat <<'END'
usage: deploy/install.sh [--system] [--program PATH] [--uninstall]

  --system        for this machine, as the user pykoclaw (needs root), instead of for you
  --program PATH  the pykoclaw-acp to run; without it, the one that the unit's PATH or yours leads to
  --uninstall     stop the service and remove the units; conversations, keys and settings stay

With DESTDIR set, the files of --system go below that directory, and nothing is started.
END
}

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

scope=user program='' action=install destdir=${DESTDIR:-}
while [ $# -gt 0 ]; do
    case $1 in
        --system) scope=system ;;
        --uninstall) action=uninstall ;;
        --program) [ $# -gt 1 ] || fail "--program needs a path."; program=$2; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

source=$(cd "$(dirname "$0")" && pwd)/$scope
socket=pykoclaw-acp.socket service=pykoclaw-acp.service
if [ $scope = system ]; then
    [ -n "$destdir" ] || [ "$(id -u)" = 0 ] || fail "--system needs root. Run it with sudo."
    units=$destdir/etc/systemd/system settings=$destdir/etc/pykoclaw
    home=/var/lib/pykoclaw state_home=/var/lib/pykoclaw/.local/state
else
    [ -z "$destdir" ] || fail "DESTDIR is for --system only."
    config=${XDG_CONFIG_HOME:-$HOME/.config}
    units=$config/systemd/user settings=$config/pykoclaw
    home=$HOME state_home=${XDG_STATE_HOME:-$HOME/.local/state}
fi
dropin=$units/$service.d/program.conf
changed=no

# --- systemd ----------------------------------------------------------------------------------------------------------

manage() { systemctl --$scope "$@"; }

# Whether a manager runs that these files are for.
managed() { [ -z "$destdir" ] && manage show-environment >/dev/null 2>&1; }

# `enable` and `disable` are links, which need no manager.
link() {
    if [ -n "$destdir" ]; then
        systemctl --root="$destdir" --quiet "$1" "$socket"
    elif managed; then
        manage --quiet "$1" "$socket"
    else
        SYSTEMD_OFFLINE=1 systemctl --$scope --quiet "$1" "$socket"
    fi
}

# --- files ------------------------------------------------------------------------------------------------------------

# put FILE TARGET: only what differs is written, as a whole.
put() {
    cmp -s "$1" "$2" && return 0
    mkdir -p "$(dirname "$2")"
    install -m 644 "$1" "$2.new"
    mv -f "$2.new" "$2"
    changed=yes
    say "wrote $2"
}

# A file for secrets, empty at first.
secret() {
    [ -e "$1" ] && return 0
    (umask 077; mkdir -p "$(dirname "$1")"; : >"$1")
    say "wrote $1 (empty; only its owner can read it)"
}

take_away() {
    [ -e "$1" ] || return 0
    rm -f "$1"
    say "removed $1"
}

# Which program the service runs: a drop-in is needed only if the unit's own PATH does not lead to it.
choose_program() {
    if [ -n "$program" ]; then
        [ -x "$program" ] || fail "$program is not an executable program."
        program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
    else
        path=$(sed -n 's/^Environment=PATH=//p' "$source/$service" | sed "s|%h|$home|g")
        [ -n "$(PATH=$path command -v pykoclaw-acp)" ] && { take_away "$dropin"; return 0; }
        [ -e "$dropin" ] && return 0
        program=$(command -v pykoclaw-acp) || fail "pykoclaw-acp is not on PATH. Install it, or say --program PATH."
    fi
    new=$(mktemp)
    printf '# Written by install.sh.\n[Service]\nExecStart=\nExecStart="%s" serve\n' "$program" >"$new"
    put "$new" "$dropin"
    rm -f "$new"
}

# --- a daemon that a client has started -------------------------------------------------------------------------------

# It ends, its workers go on, and the service takes them over. Meanwhile no client may start another.
hand_over() {
    data=$(setting PYKOCLAW_DATA "$home/.local/share/pykoclaw")
    lock=$data/pykoclaw-acp.lock
    [ -e "$lock" ] && ! flock -n "$lock" true || return 0
    pid=$(sed -n 1p "$lock")
    [ "$pid" != "$(manage show --property MainPID --value $service)" ] || return 0
    [ -n "$(sed -n 2p "$lock")" ] || fail "A client's own server (pid $pid) uses $data. End that client first."
    say "the daemon that runs now (pid $pid) hands over to the service"
    state=$(setting PYKOCLAW_STATE "$state_home/pykoclaw")
    exec 9>"$state/$(printf %s "$data" | sha256sum | cut -c 1-12)/spawn.lock"
    flock -w 60 9 || fail "A client has been starting a daemon for 60 s. See \`pykoclaw-acp doctor\`."
    kill -TERM "$pid"
    flock -w 60 "$lock" true || fail "The daemon (pid $pid) does not end. See \`pykoclaw-acp doctor\`."
    manage start $socket $service
    exec 9>&-
}

# setting NAME DEFAULT: what the service's environment file says.
setting() {
    value=$(sed -n "s/^$1=//p" "$settings/environment" | tail -n 1)
    printf %s "${value:-$2}"
}

# ----------------------------------------------------------------------------------------------------------------------

install_units() {
    choose_program
    put "$source/$socket" "$units/$socket"
    put "$source/$service" "$units/$service"
    secret "$settings/environment"
    if [ $scope = system ]; then
        secret "$settings/anthropic_api_key"
        put "$source/sysusers.conf" "$destdir/etc/sysusers.d/pykoclaw-acp.conf"
        put "$source/tmpfiles.conf" "$destdir/etc/tmpfiles.d/pykoclaw-acp.conf"
        if [ -z "$destdir" ]; then
            systemd-sysusers /etc/sysusers.d/pykoclaw-acp.conf
            systemd-tmpfiles --create /etc/tmpfiles.d/pykoclaw-acp.conf
        fi
    fi
    link enable
    if ! managed; then
        say "No systemd manager of yours runs now: the socket is there from its next start on."
        return 0
    fi
    manage daemon-reload
    hand_over
    manage start $socket
    if [ $changed = yes ]; then manage restart $service; else manage start $service; fi
    say "pykoclaw-acp.service runs"
}

uninstall_units() {
    if managed; then
        manage stop $socket $service 2>/dev/null || true
    fi
    if [ -e "$units/$socket" ]; then link disable; fi
    for file in "$units/$socket" "$units/$service" "$dropin"; do take_away "$file"; done
    [ ! -d "$units/$service.d" ] || rmdir "$units/$service.d" 2>/dev/null || say "kept $units/$service.d (yours)"
    if [ $scope = system ]; then
        take_away "$destdir/etc/sysusers.d/pykoclaw-acp.conf"
        take_away "$destdir/etc/tmpfiles.d/pykoclaw-acp.conf"
    fi
    for file in "$settings/environment" "$settings/anthropic_api_key"; do
        if [ -s "$file" ]; then say "kept $file (yours)"; else take_away "$file"; fi
    done
    [ ! -d "$settings" ] || rmdir "$settings" 2>/dev/null || true
    if managed; then manage daemon-reload; fi
    [ $scope = user ] || say "kept the user pykoclaw and $home; \`userdel -r pykoclaw\` removes both, with all conversations"
}

${action}_units
