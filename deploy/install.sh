#!/bin/sh
# Install pykoclaw-acp's systemd units, for you or for this machine, or take them away again. May be run any number of
# times. It touches no conversation: a daemon that runs hands over to the service, and its turns go on.
#
# With --system it runs as root, and trusts nothing that the user pykoclaw can write, as Claude's tools are that user: such
# files are opened, and such processes ended, by a process of that user alone.
set -eu
umask 022

usage() {
    cat <<'END'
usage: deploy/install.sh [--system] [--program PATH] [--profile NAME] [--uninstall]

  --system        for this machine, as the user pykoclaw (needs root), instead of for you
  --program PATH  the pykoclaw-acp to run; without it, the one that the unit's PATH or yours leads to
  --profile NAME  editor (Claude asks before it acts) or pykoclaw (as pykoclaw's earlier ACP plugin: nobody is asked);
                  without it, what is set stays; a person at a terminal is asked once
  --uninstall     stop the service and remove the units; conversations, keys and settings stay

With DESTDIR set, the files of --system go below that directory, and nothing is started.
END
}

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

scope=user program='' profile='' action=install destdir=${DESTDIR:-}
while [ $# -gt 0 ]; do
    case $1 in
        --system) scope=system ;;
        --profile) [ $# -gt 1 ] || fail "--profile needs editor or pykoclaw."; profile=$2; shift ;;
        --uninstall) action=uninstall ;;
        --program) [ $# -gt 1 ] || fail "--program needs a path."; program=$2; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

case $profile in '' | editor | pykoclaw) ;; *) fail "There is no profile $profile; editor and pykoclaw are." ;; esac
source=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)/$scope
socket=pykoclaw-acp.socket service=pykoclaw-acp.service
if [ $scope = system ]; then
    [ -n "$destdir" ] || [ "$(id -u)" = 0 ] || fail "--system needs root. Run it with sudo."
    units=$destdir/etc/systemd/system settings=$destdir/etc/pykoclaw
    home=/var/lib/pykoclaw
else
    [ -z "$destdir" ] || fail "DESTDIR is for --system only."
    config=${XDG_CONFIG_HOME:-$HOME/.config}
    units=$config/systemd/user settings=$config/pykoclaw
    home=$HOME
    [ "$(stat -c %u "$home/.")" = "$(id -u)" ] || fail "$home is not yours. Run it as its user, without sudo."
    # By it the manager is found. With su, sudo -u and cron it is unset, or that of another user.
    runtime=/run/user/$(id -u)
    if [ "$(stat -c %u "${XDG_RUNTIME_DIR:-}" 2>/dev/null)" != "$(id -u)" ] && [ -d "$runtime" ]; then
        XDG_RUNTIME_DIR=$runtime
        export XDG_RUNTIME_DIR
    fi
fi
dropin=$units/$service.d/program.conf mark='# Chosen with --program.'
changed=no

# --- systemd ----------------------------------------------------------------------------------------------------------

manage() { systemctl --$scope "$@"; }

# Whether a manager runs that these files are for.
managed() { [ -z "$destdir" ] && manage show-environment >/dev/null 2>&1; }

# One that runs and does not answer would keep the old units.
require_answer() {
    [ $scope = user ] && [ -S "${XDG_RUNTIME_DIR:-}/systemd/private" ] || return 0
    managed || fail "Your systemd manager does not answer (\`systemctl --user status\`), so nothing was changed."
}

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

# What root reads and writes is root's, and so is everything above it.
require_own() {
    [ $scope = system ] && [ -z "$destdir" ] || return 0
    place=$1
    while :; do
        if [ -e "$place" ] || [ -L "$place" ]; then
            case $(stat -c '%u %A' "$place") in
                "0 "[d-]????[!w]??[!w]*) ;;
                *) fail "$place must be root's, no link, and writable by nobody else. See \`ls -ld $place\`." ;;
            esac
        fi
        [ "$place" != / ] || return 0
        place=$(dirname "$place")
    done
}

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
    (umask 077; mkdir -p "$(dirname "$1")"; set -C; : >"$1")
    say "wrote $1 (empty; only its owner can read it)"
}

take_away() {
    [ -e "$1" ] || return 0
    rm -f "$1"
    changed=yes
    say "removed $1"
}

is_program() { [ -f "$1" ] && [ -x "$1" ]; }

# Which program the service runs: that of --program, also of an earlier one, else the one that the unit's own PATH leads
# to, which needs no drop-in, else that of the person's PATH.
choose_program() {
    chosen='' kept=''
    path=$(sed -n 's/^Environment=PATH=//p' "$source/$service" | sed "s|%h|$home|g")
    if [ -n "$program" ]; then
        chosen=$program
        is_program "$program" || fail "$program is not an executable program."
        program=$(CDPATH= cd -- "$(dirname -- "$program")" && pwd)/$(basename -- "$program")
    else
        if [ -e "$dropin" ]; then
            kept=$(sed -n 's/^ExecStart="\(.*\)" serve$/\1/p' "$dropin")
            [ -n "$kept" ] || fail "$dropin is not as this script writes it. Move it away, or say --program PATH."
            grep -qx "$mark" "$dropin" && chosen=$kept
            is_program "$kept" || { say "$kept, which the service ran, is gone"; chosen=''; }
        fi
        program=$chosen
        if [ -n "$program" ]; then
            say "the service keeps $program, which was chosen with --program"
        elif [ -n "$(PATH=$path command -v pykoclaw-acp)" ]; then
            say "the service runs $(PATH=$path command -v pykoclaw-acp)"
            take_away "$dropin"
            program=pykoclaw-acp
            return 0
        else
            program=$(command -v pykoclaw-acp) || fail "pykoclaw-acp is not on PATH. Install it, or say --program PATH."
            say "the service runs $program"
        fi
    fi
    case $scope$program in
        system/home/* | system/root/* | system/run/user/*)
            fail "The system's service sees nothing below /home, /root and /run/user, so $program cannot be run." ;;
    esac
    case $program in
        *[!A-Za-z0-9/._+@~,:=-]*) fail "The path $program has a character that a unit cannot hold. Use another path." ;;
    esac
    new=$(mktemp)
    {
        printf '# Written by install.sh.\n'
        [ -z "$chosen" ] || printf '%s\n' "$mark"
        printf '[Service]\nExecStart=\nExecStart="%s" serve\n' "$program"
    } >"$new"
    put "$new" "$dropin"
    rm -f "$new"
}

# The defaults of sessions, in the service's environment file: what was asked for, else what is set, else a person's
# answer, who is asked once.
choose_profile() {
    file=$settings/environment
    set_to=$(setting PYKOCLAW_PROFILE)
    if [ -z "$profile" ]; then
        [ -z "$set_to" ] && [ -z "$destdir" ] && [ -t 0 ] && [ -t 1 ] || return 0
        theirs=$home/.local/share/pykoclaw/.env
        [ $scope = system ] || ! grep -qsE "^$blank(export$blank)?PYKOCLAW_PROFILE$blank=" "$theirs" || return 0
        say "Which defaults are sessions to have (PYKOCLAW_PROFILE)?"
        say "  editor    Claude asks before it changes files or runs commands"
        say "  pykoclaw  as pykoclaw's earlier ACP plugin: nobody is asked (docs/migration.md)"
        while :; do
            printf 'Profile [editor]: '
            IFS= read -r profile || { say; profile=''; return 0; }
            case ${profile:=editor} in editor | pykoclaw) break ;; esac
            say "Answer editor or pykoclaw."
        done
    fi
    [ "$profile" != "$set_to" ] || return 0
    # A copy has the mode of the file, which may hold keys, before it has its content.
    cp -p "$file" "$file.new"
    { grep -v "^${blank}PYKOCLAW_PROFILE$blank=" "$file" || :; printf 'PYKOCLAW_PROFILE=%s\n' "$profile"; } >"$file.new"
    mv -f "$file.new" "$file"
    changed=yes
    say "set PYKOCLAW_PROFILE=$profile in $file"
}

# --- a daemon that a client has started -------------------------------------------------------------------------------

# It ends, its workers go on, and the service takes them over. Meanwhile no client may start another: the program keeps
# the lock for that until its standard input ends. It asks the kernel who has the data directory, as the owner of that.
hand_over() {
    main=$(manage show --property MainPID --value $service)
    meeting=$(mktemp -d)
    trap 'rm -rf "$meeting"' EXIT
    mkfifo "$meeting/hold" "$meeting/said"
    as_owner hand-over --but "${main:-0}" \
        <"$meeting/hold" >"$meeting/said" 2>&1 &
    exec 8>"$meeting/hold" 7<"$meeting/said"
    while IFS= read -r word <&7; do
        word=$(printf %s "$word" | tr -cd '[:print:]')
        case $word in
            none) ;;  # of a program of a version before
            "found "*[!0-9]* | "ended "*[!0-9]*) fail "The program said: $word" ;;
            "found "*) say "the daemon that runs now (pid ${word#found }) hands over to the service" ;;
            "ended "*) manage start $socket $service; exec 8>&- ;;
            *) fail "${word#Error: }" ;;
        esac
    done
    exec 8>&- 7<&-
    wait $! || fail "The daemon could not be looked for. Run \`pykoclaw-acp doctor\` as the service's user."
}

# as_owner ARGUMENT…: the program, as the user whose data it is. As another user it has neither our terminal, into which
# it could type, nor our environment; and its PATH counts only when it is that user. Where the service has no setting, the
# program looks for it itself, as in ~/.local/share/pykoclaw/.env.
as_owner() {
    data=$(setting PYKOCLAW_DATA) state=$(setting PYKOCLAW_STATE)
    set -- "$program" "$@"
    [ -z "$data" ] || set -- PYKOCLAW_DATA="$data" "$@"
    [ -z "$state" ] || set -- PYKOCLAW_STATE="$state" "$@"
    if [ $scope = system ]; then
        cd /
        set -- setsid -w setpriv --reuid=pykoclaw --regid=pykoclaw --init-groups --no-new-privs -- \
            env -i PATH="$path" HOME="$home" PYKOCLAW_SOCKET=/run/pykoclaw/acp.sock "$@"
    else
        cd "$home"  # as the unit does: a ./.env here is not the service's
        set -- env -u PYKOCLAW_DATA -u PYKOCLAW_STATE PATH="$path:$PATH" "$@"
    fi
    exec "$@"
}

# setting NAME: what the service's environment file says, without the blanks and quotes that systemd takes off.
blank='[[:space:]]*'
setting() {
    sed -n "s/^$blank$1$blank=$blank//p" "$settings/environment" | tail -n 1 |
        sed "s/$blank\$//; s/^\([\"']\)\(.*\)\1\$/\2/"
}

# ----------------------------------------------------------------------------------------------------------------------

install_units() {
    require_answer
    for place in "$dropin" "$settings/environment"; do require_own "$place"; done
    choose_program
    put "$source/$socket" "$units/$socket"
    put "$source/$service" "$units/$service"
    secret "$settings/environment"
    choose_profile
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
    for place in "$dropin" "$settings/environment"; do require_own "$place"; done
    require_answer
    if managed; then
        manage stop $socket $service 2>/dev/null || ! manage --quiet is-active $socket $service ||
            fail "The service does not stop, so nothing was removed. See \`systemctl --$scope status $service\`."
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
    [ $changed = yes ] || say "nothing is removed: there were no units of pykoclaw-acp in $units"
    [ $scope = user ] || say "kept the user pykoclaw and $home; \`userdel -r pykoclaw\` removes both, with all conversations"
}

${action}_units
