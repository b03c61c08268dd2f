#!/bin/busybox sh
# PID 1 of a booted kernel: sets the machine up as its parameters say, tries every case as root and as an ordinary user,
# writes what happened to the serial line that smcp.results names, and switches the machine off.
export PATH=/usr/bin:/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
results=$(sed -n 's/.*smcp.results=\([^ ]*\).*/\1/p' /proc/cmdline)
exec >/dev/$results 2>&1
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
ip link set lo up
case $(cat /proc/cmdline) in
  *smcp.cgroups=v1*)
    mount -t tmpfs tmpfs /sys/fs/cgroup
    for controller in memory pids cpu cpuacct; do
      mkdir /sys/fs/cgroup/$controller
      mount -t cgroup -o $controller cgroup /sys/fs/cgroup/$controller || rmdir /sys/fs/cgroup/$controller
    done ;;
  *) mount -t cgroup2 cgroup2 /sys/fs/cgroup ;;
esac
# A grant with another file system beneath, which must be as read-only as the rest.
mount -t tmpfs -o mode=1777 tmpfs /srv/deep/below
chmod 1777 /srv/data /srv/deep
echo text >/srv/data/file
for user in root tester; do
  mkdir -p /home/$user/.ssh
  echo secret >/home/$user/.ssh/id
done
chown -R 1000:1000 /home/tester
# The client keeps the server's input open.
mkfifo /tmp/input
sleep 100000 >/tmp/input &

attempt() {
  user=$1 name=$2
  shift 2
  echo "== case $user $name"
  if [ "$user" = root ]; then
    env -i HOME=/home/root PATH=/usr/bin:/bin timeout -s KILL 120 "$@" </tmp/input
  else
    env -i HOME=/home/tester PATH=/usr/bin:/bin timeout -s KILL 120 /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups "$@" </tmp/input
  fi
  echo "== exit $?"
}
echo "== kernel $(uname -r)"
. /cases.sh
echo "== done"
sync
poweroff -f
