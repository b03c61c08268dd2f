#!/bin/bash
# Run as root by a service of the booted machine: tries every situation in which smcp can find cgroups, and writes what
# happened to the second serial line.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec 2>&1
package=oci-layout:/job/probe:v1
echo "== kernel $(uname -r)"
systemctl --version | head -n 1
stat -f -c 'cgroups: %T' /sys/fs/cgroup
cp /job/smcp /usr/bin/smcp
cp /job/smcp /usr/bin/smcp-restricted
mkdir -m 1777 /tmp/audit
# The client keeps the server's input open.
mkfifo -m 666 /tmp/input
sleep 100000 >/tmp/input &

# Whose bus a situation needs is there when the machine is; the first call of each is slow under emulation.
for user in tester meagre; do
  until [ -S "/run/user/$(id -u $user)/bus" ]; do sleep 0.2; done
  systemctl --user --machine="$user@" is-system-running >/dev/null
done

# Runs a line of shell in a situation, from an empty environment where it gives none.
within() {
  case $1 in
    root-in-a-service)
      systemd-run --quiet --wait --pipe -p Delegate=yes -E HOME=/root sh -c "$2" ;;
    root-in-a-scope-of-its-own-slice)
      systemd-run --quiet --scope --slice=own.slice -E HOME=/root sh -c "$2" ;;
    root-where-cgroups-are-read-only)
      systemd-run --quiet --wait --pipe -p ProtectControlGroups=yes -E HOME=/root sh -c "$2" ;;
    user-in-a-session)
      su -l tester -c "$2" ;;
    user-in-a-service)
      systemd-run --quiet --wait --pipe --uid=tester -E HOME=/home/tester sh -c "$2" ;;
    user-in-a-delegated-scope)
      su -l tester -c "systemd-run --quiet --user --scope -p Delegate=yes sh -c '$2'" ;;
    user-without-a-bus | user-whose-bus-hangs)
      env -i PATH=/usr/bin:/bin HOME=/home/lonely setpriv --reuid lonely --regid lonely --clear-groups sh -c "$2" ;;
    user-whose-systemd-has-processes-alone)
      env -i PATH=/usr/bin:/bin HOME=/home/meagre setpriv --reuid meagre --regid meagre --clear-groups sh -c "$2" ;;
  esac </tmp/input
}

attempt() {
  echo "== case $1 $2"
  within "$1" "MCP_AUDIT_LOG_FILE=/tmp/audit/$1.log timeout -s KILL 120 ${3}"
  code=$?
  tail -n 2 "/tmp/audit/$1.log"
  echo "== exit $code"
}

for situation in $(cat /job/situations); do
  if [ "$situation" = user-whose-bus-hangs ]; then
    # Somebody listens there, and nobody ever accepts.
    mkdir -p "/run/user/$(id -u lonely)"
    listen="ListenStream=/run/user/$(id -u lonely)/bus"
    systemd-run --quiet --socket-property="$listen" --socket-property=SocketMode=0666 sleep 100000
  fi
  # The first is for the store and for caches.
  within "$situation" "MCP_AUDIT_LOG_FILE=/tmp/audit/$situation.else smcp doctor" >/dev/null
  attempt "$situation" a-server "smcp run $package own-cgroup"
  attempt "$situation" too-much-memory "smcp run --memory 64M $package hog 1000 2"
  attempt "$situation" too-many-processes "smcp run --pids 64 $package fork-bomb 400"
  # A killed smcp, and what its end leaves: the next start removes a cgroup, systemd a scope.
  echo "== case $situation a-killed-smcp"
  within "$situation" "MCP_AUDIT_LOG_FILE=/tmp/audit/$situation.killed exec smcp run $package hang" >/tmp/said &
  until grep -q ready /tmp/said; do sleep 0.2; done
  pkill -KILL -x smcp
  wait %2 2>/dev/null
  sleep 2
  within "$situation" "MCP_AUDIT_LOG_FILE=/tmp/audit/$situation.else smcp run $package cwd" >/dev/null
  for _ in $(seq 50); do
    left=$(find /sys/fs/cgroup -type d -name '*smcp-*')
    [ -z "$left" ] && break
    sleep 0.2
  done
  echo "left: ${left:-nothing}"
  echo "== exit 0"
done

if [ -f /job/restricted ]; then
  # What Ubuntu 24.04 does to every program that has no profile of its own.
  printf 'abi <abi/4.0>,\nprofile smcp-restricted /usr/bin/smcp-restricted {\n  allow all,\n  userns,\n  audit deny capability,\n}\n' >/tmp/profile
  apparmor_parser -r /tmp/profile
  echo "== case user-restricted-by-apparmor doctor"
  su -l tester -c smcp-restricted\ doctor
  echo "== exit $?"
  echo "== case user-restricted-by-apparmor a-server"
  su -l tester -c "smcp-restricted run $package exit 7"
  echo "== exit $?"
fi
echo "== done"
