// SPDX-License-Identifier: GPL-2.0
//! QEMU's command line.

use std::path::Path;

use crate::channel::Source;
use crate::options::{Flavour, Options};

/// How the CPU is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Emulated.
    Tcg,
    /// /dev/kvm of this host.
    Kvm,
    /// KVM in an emulated guest.
    Nested,
}

impl Lane {
    /// Its name, as COMMAND sees it in CPUPEEK_LANE.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
            Self::Nested => "nested",
        }
    }
}

/// The streams of the guest under test, in the order of their ports; the console is a serial port.
pub const PORTS: &[Source] = &[Source::Control, Source::Out, Source::Err];

/// What one QEMU is to run.
pub struct Guest<'a> {
    /// `-accel` and `-cpu`, and what depends on them.
    pub accel: &'a [&'a str],
    /// CPUs.
    pub cpus: u32,
    /// In how many dies they are.
    pub dies: u32,
    /// MiB.
    pub memory: u32,
    /// The kernel.
    pub image: &'a Path,
    /// Its initramfs.
    pub initramfs: &'a Path,
    /// Its command line.
    pub append: &'a str,
    /// The stream on the serial port.
    pub console: Source,
    /// The streams on virtio ports.
    pub ports: &'a [Source],
}

/// The arguments of QEMU for `guest`, with the streams connected by `chardev`.
pub fn arguments(guest: &Guest<'_>, chardev: impl Fn(Source) -> String) -> Vec<String> {
    let mut words: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |name: &str, value: String| {
        words.push(name.to_owned());
        words.push(value);
    };
    for pair in guest.accel.chunks(2) {
        if let [name, value] = pair {
            // Where QEMU takes the host's CPU for an AMD one, the leaf of dies has to be asked for.
            let leaf = if *name == "-cpu" && guest.dies > 1 {
                ",level=0x1f"
            } else {
                ""
            };
            add(name, format!("{value}{leaf}"));
        }
    }
    let smp = match guest.dies {
        1 => guest.cpus.to_string(),
        dies => format!(
            "{},sockets=1,dies={dies},cores={},threads=1",
            guest.cpus,
            guest.cpus / dies
        ),
    };
    add("-smp", smp);
    add("-m", format!("{}M", guest.memory));
    add("-kernel", guest.image.display().to_string());
    add("-initrd", guest.initramfs.display().to_string());
    add("-append", guest.append.to_owned());
    add("-chardev", chardev(guest.console));
    add("-serial", format!("chardev:{}", guest.console.name()));
    add("-device", "virtio-serial-pci,max_ports=16".to_owned());
    for port in guest.ports {
        add("-chardev", chardev(*port));
        add(
            "-device",
            format!("virtserialport,chardev={0},name=cpupeek.{0}", port.name()),
        );
    }
    words
}

/// `-accel` and its kin for the guest under test.
pub fn accel(lane: Lane, options: &Options) -> &'static [&'static str] {
    match lane {
        Lane::Tcg if options.icount => &[
            "-machine",
            "pc",
            "-accel",
            "tcg,thread=single",
            "-icount",
            "shift=0,sleep=off",
            "-cpu",
            "max",
        ],
        Lane::Tcg => &[
            "-machine",
            "pc",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
        ],
        Lane::Kvm | Lane::Nested => &[
            "-machine",
            "pc,kernel-irqchip=split",
            "-accel",
            "kvm",
            "-cpu",
            "host",
        ],
    }
}

/// `-accel` and its kin for the outer guest of the nested lane.
///
/// With page tables of five levels, which `max` has, emulation now and then finds a present page of the
/// inner kernel absent just after an entry, and the inner guest ends with a triple fault: four of eight
/// runs of the benchmark did. Without, none of seven did, and one of some twenty guests in all.
pub const OUTER_ACCEL: &[&str] = &[
    "-machine",
    "pc",
    "-accel",
    "tcg,thread=multi",
    "-cpu",
    "max,+svm,+npt,-la57",
];

/// Memory of the outer guest beyond that of the inner one: two copies of its initramfs, and QEMU.
pub const OUTER_MEMORY: u32 = 2048;

/// The kernel command line of the outer guest.
pub const OUTER_APPEND: &str =
    "console=ttyS0,115200 earlyprintk=ttyS0,115200 loglevel=7 panic=-1 oops=panic rdinit=/init";

/// The memory of the guest under test.
pub fn memory(options: &Options) -> u32 {
    let usual = match options.flavour {
        Flavour::Debug => 1536,
        Flavour::Stock | Flavour::Rt => 512,
    };
    // Per-CPU areas and stacks; KASAN's shadow makes them dearer.
    let more = options.cpus().saturating_sub(8) * (usual / 64);
    options.memory.unwrap_or(usual + more)
}

/// The kernel command line of the guest under test.
pub fn append(lane: Lane, options: &Options) -> String {
    let mut words = vec![
        "console=ttyS0,115200 earlyprintk=ttyS0,115200 printk.time=1 loglevel=7",
        "panic=-1 oops=panic rdinit=/init",
    ];
    if options.flavour == Flavour::Debug {
        words.push("panic_on_warn=1");
        // While the boot CPU is identified its features are forgotten for a moment. KASAN takes an address
        // for a wild one that an interrupt looks at just then, if there are five levels of page tables.
        words.push("no5lvl");
    }
    if lane == Lane::Nested {
        // Two schedulers below this kernel may keep a CPU waiting for longer than it has patience.
        words.push("watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=100");
    }
    if options.root.is_some() {
        // The last one counts.
        words.push("rdinit=/usr/sbin/init systemd.show_status=0");
    }
    if !options.append.is_empty() {
        words.push(&options.append);
    }
    words.join(" ")
}
