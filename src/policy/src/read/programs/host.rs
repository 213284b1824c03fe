//! Programs that are made to change the host: its services, disks, users, kernel and other processes.

use super::{Judge, Row};
use crate::read::found::{Call, Found};
use crate::read::options::Does;
use crate::read::reader::Reader;
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row(
        "mount umount fusermount fusermount3 losetup swapon swapoff pivot_root switch_root kexec insmod rmmod modprobe depmod \
         iptables ip6tables nft ufw firewall-cmd ebtables arptables tc brctl ethtool iwconfig iw rfkill \
         useradd userdel usermod groupadd groupdel groupmod adduser deluser addgroup delgroup passwd chpasswd chsh chfn vipw visudo \
         newusers gpasswd update-alternatives ldconfig update-grub grub-install grub-mkconfig dracut mkinitcpio update-initramfs \
         hwclock setcap cryptsetup dmsetup lvcreate lvremove vgcreate pvcreate mdadm zpool zfs btrfs setenforce semanage chcon \
         restorecon aa-enforce aa-complain apparmor_parser auditctl bpftool bpftrace quotaon edquota",
        Judge::Does(&[Does::Escapes("changes the host")]),
    ),
    Row(
        "reboot shutdown halt poweroff init telinit runlevel",
        Judge::Does(&[Does::Escapes("stops the host")]),
    ),
    Row(
        "mkfs mkfs.ext4 mkfs.ext3 mkfs.ext2 mkfs.xfs mkfs.btrfs mkfs.vfat mkfs.fat mke2fs mkswap wipefs fdisk cfdisk sfdisk gdisk sgdisk \
         parted blkdiscard hdparm badblocks e2fsck fsck tune2fs resize2fs xfs_repair sg_format nvme",
        Judge::Does(&[Does::Destroys("overwrites a disk"), Does::Escapes("changes the disks of the host")]),
    ),
    Row(
        "systemctl loginctl hostnamectl timedatectl localectl resolvectl networkctl journalctl service rc-service rc-update chkconfig initctl sv",
        Judge::By(service),
    ),
    Row("sysctl", Judge::By(sysctl)),
    Row("ip ifconfig route arp netstat ss", Judge::By(interfaces)),
    Row("kill pkill killall skill renice", Judge::By(kill)),
    Row(
        "docker podman nerdctl buildah skopeo ctr crictl docker-compose podman-compose",
        Judge::By(containers),
    ),
    Row(
        "kubectl helm k9s kustomize minikube kind k3s k3d lxc lxc-attach lxd incus virsh virt-install vagrant multipass qemu-system-x86_64 colima limactl",
        Judge::By(machines),
    ),
];

fn escape(call: &Call<'_>, found: &mut Found, why: &str) {
    found.mutates(format!("`{}` {why}", call.name));
    found.escapes(format!("`{}` {why}", call.name));
}

fn service(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let first = call.args.iter().map(Word::shown).find(|word| !word.starts_with('-'));
    let only_looks = match (call.name, first) {
        ("journalctl", _) => !call.args.iter().any(|word| {
            ["--vacuum", "--rotate", "--flush", "--sync", "--relinquish", "--setup"]
                .iter()
                .any(|flag| word.shown().starts_with(flag))
        }),
        (
            _,
            Some(
                "status" | "is-active" | "is-enabled" | "is-failed" | "show" | "list-units"
                | "list-unit-files" | "list-timers" | "cat" | "list-sessions" | "list-users" | "query",
            ),
        ) => true,
        (
            "systemctl" | "loginctl" | "hostnamectl" | "timedatectl" | "localectl" | "resolvectl"
            | "networkctl",
            None,
        ) => true,
        _ => false,
    };
    if only_looks {
        // Even to ask, it talks to services beyond the sandbox.
        if call.name != "journalctl" {
            found.escapes(format!("`{}` talks to the services of the host", call.name));
        }
    } else {
        escape(call, found, "changes the services of the host");
    }
}

fn sysctl(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let sets = |word: &Word| {
        word.shown().contains('=')
            || matches!(word.shown(), "-w" | "--write" | "-p" | "--load" | "--system")
            || word.known().is_none()
    };
    if call.args.iter().any(sets) {
        escape(call, found, "sets values of the kernel");
    }
}

fn interfaces(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    const VERBS: &[&str] = &[
        "add", "del", "delete", "set", "change", "replace", "append", "flush", "exec", "up", "down", "netns",
        "attach", "identify", "mtu", "netmask", "hw", "promisc", "-d", "-s", "-K", "--kill", "-b", "-batch",
        "-force", "save", "restore",
    ];
    let is_verb = |word: &Word| {
        VERBS.contains(&word.shown()) && !(call.name == "ss" && matches!(word.shown(), "-s" | "-d" | "-b"))
    };
    let is_netstat = call.name == "netstat";
    let names_address = call.name == "ifconfig" && call.args.len() > 1;
    if !is_netstat && (names_address || call.args.iter().any(|word| is_verb(word) || word.known().is_none()))
    {
        escape(call, found, "changes the network of the host");
    }
}

fn kill(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let only_lists =
        call.args.iter().any(|word| matches!(word.shown(), "-l" | "-L" | "--list" | "--table" | "-0"));
    if !only_lists {
        found.mutates(format!("`{}` acts on other processes", call.name));
    }
}

fn containers(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    escape(call, found, "asks a service of the host, which can do anything there");
    let has = |words: &[&str]| call.args.iter().any(|word| words.contains(&word.shown()));
    if has(&["pull", "push", "login", "run", "build", "search", "up", "create", "copy", "inspect"]) {
        found.networks(format!("`{}` can fetch from a registry", call.name));
    }
    if has(&["rm", "rmi", "prune", "kill", "down"]) {
        found.destroys(format!("`{}` deletes what the service has", call.name));
    }
    if has(&["-it", "-ti", "--interactive", "attach"]) {
        found.talks(format!("`{}` takes the terminal", call.name));
    }
}

fn machines(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    if call.name == "helm" && matches!(call.first(), Some("template" | "lint" | "version")) {
        return;
    }
    escape(call, found, "acts on machines beyond the sandbox");
    if !matches!(call.name, "virsh" | "lxc-attach") {
        found.networks(format!("`{}` talks to a service", call.name));
    }
    if call.args.iter().any(|word| matches!(word.shown(), "delete" | "destroy" | "undefine" | "uninstall")) {
        found.destroys(format!("`{}` deletes what the service has", call.name));
    }
}
