# Runs outside of the new root, but within the namespaces: lower place packages stay script. All that
# is written goes to memory; the network has nothing but itself.
set -eu
lower=$1 place=$2 packages=$3 stay=$4 script=$5
ip link set lo up
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$place/upper,workdir=$place/work" "$place/root"
cd "$place/root"
mkdir -p proc sys dev tmp packages
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --bind "$packages" packages
if [ "$stay" = true ]; then mount --bind tmp /tmp; exec bash -c "$script"; fi
exec chroot . bash -c "cd /; $script"
