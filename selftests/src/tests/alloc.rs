// SPDX-License-Identifier: GPL-2.0

//! What the module allocates and frees, by the kernel's kmem tracepoints and /proc/slabinfo, and
//! what it says of that itself.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

use super::blocked::{wait_until_waiting, with_blocked_cpu};
use super::{tests, Env};
use crate::device::{cpupeek_batch, header, Device, Op, BATCH, SELF, TSC_AUX};
use crate::guest::{self, attribute};
use crate::hold;
use crate::sys::{self, Errno, Exit};
use crate::trace::{Event, Trace};

tests! {
    "alloc";
    nothing_for_this_cpu: [Trace],
    once_for_other_cpus: [Cpus Trace],
    nothing_for_too_many_operations: [Trace],
    killed_readers_leave_nothing: [Hold Trace],
    timed_out_readers_leave_nothing: [Hold Trace],
}

/// The addresses at which a function of the kernel's, or the module, may be.
fn address_range(name: &str, symbols: &str) -> (u64, u64) {
    let address = |digits: &str| u64::from_str_radix(digits, 16).expect("an address");
    if name == "cpupeek" {
        let modules = guest::read("/proc/modules").unwrap();
        let mut lines = modules
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let words = lines.find(|words| words[0] == name).expect("it is loaded");
        let start = address(words[5].trim_start_matches("0x"));
        return (start, start + words[1].parse::<u64>().expect("a size"));
    }
    // A line is "ADDRESS TYPE NAME".
    let end = symbols.find(&format!(" {name}\n"));
    let before = &symbols[..end.unwrap_or_else(|| panic!("no symbol {name}"))];
    let line = before
        .rsplit('\n')
        .next()
        .expect("splits into one part at least");
    let start = address(
        line.split(' ')
            .next()
            .expect("splits into one part at least"),
    );
    // No function here is longer, and its neighbours do no harm.
    (start, start + 0x800)
}

/// A trace filter for call sites in any of these.
fn called_from(names: &[&str]) -> String {
    let symbols = guest::read("/proc/kallsyms").unwrap();
    let within = |name: &&str| {
        let (start, end) = address_range(name, &symbols);
        format!("(call_site >= {start:#x} && call_site < {end:#x})")
    };
    names.iter().map(within).collect::<Vec<_>>().join(" || ")
}

/// The functions that the module's memory comes from, directly or through the `kernel` crate.
const ALLOCATE: &[&str] = &[
    "cpupeek",
    "kvrealloc_node_align_noprof",
    "krealloc_node_align_noprof",
];
const FREE: &[&str] = &[
    "cpupeek",
    "kvfree",
    "kvrealloc_node_align_noprof",
    "krealloc_node_align_noprof",
];

/// The module's allocations as this process runs `action`, and all of its allocations but those
/// that it would have made anyway.
#[track_caller]
fn allocations_during(action: impl FnOnce()) -> (usize, usize) {
    let mine = format!("common_pid == {}", std::process::id());
    let names = [
        "kmem/kmalloc",
        "kmem/kmem_cache_alloc",
        "kmem/mm_page_alloc",
    ];
    let events = names.map(|name| (name, mine.as_str()));
    let anyway = Trace::start(&events).stop().len();
    let trace = Trace::start(&events);
    action();
    let all = trace.stop();
    let is_ours = |event: &&Event| {
        let place = event.field("call_site").unwrap_or_default();
        event.text().contains("[cpupeek]") || place.starts_with("kvrealloc_node_align_noprof")
    };
    (
        all.iter().filter(is_ours).count(),
        all.len().saturating_sub(anyway),
    )
}

fn nothing_for_this_cpu(_: &Env) {
    let device = Device::open();
    let here = guest::online()[0];
    sys::pin(&[here]).unwrap();
    let ops = [
        Op::msr(SELF, TSC_AUX),
        Op::cpuid(SELF, 0, 0),
        Op::msr(here, TSC_AUX),
        Op::cpuid(here, 0, 0),
    ];
    let before = attribute("allocations");
    let (ours, all) = allocations_during(|| {
        for _ in 0..100 {
            for &op in &ops {
                device.read(op);
            }
        }
    });
    assert_eq!(ours, 0);
    assert!(all < 100, "{all} for 400 reads");
    assert_eq!(attribute("allocations"), before, "the module's own count");
}

fn once_for_other_cpus(_: &Env) {
    let mut cpus = guest::online();
    let here = cpus.remove(0);
    sys::pin(&[here]).unwrap();
    let ops: Vec<Op> = (0..40)
        .map(|i| Op::msr(cpus[i % cpus.len()], TSC_AUX))
        .collect();
    let mut answers = ops.clone();
    type Call<'a> = &'a mut dyn FnMut(&Device);
    let read: Call<'_> =
        &mut |device| assert_eq!(device.msr(cpus[0], TSC_AUX) & 0xfff, cpus[0].into());
    let batch: Call<'_> = &mut |device| {
        answers.copy_from_slice(&ops);
        assert_eq!(device.try_batch(header(0), &mut answers), Ok(()));
    };
    for call in [read, batch] {
        let device = Device::open();
        let before = attribute("allocations");
        let (ours, _) = allocations_during(|| call(&device));
        assert_eq!(ours, 1);
        assert_eq!(
            attribute("allocations"),
            before + 1,
            "the module's own count"
        );
        let (ours, all) = allocations_during(|| (0..100).for_each(|_| call(&device)));
        assert_eq!(ours, 0, "the descriptor keeps the memory");
        assert!(all < 50, "{all} for 100 calls");
        assert_eq!(
            attribute("allocations"),
            before + 1,
            "the module's own count"
        );
    }
}

fn nothing_for_too_many_operations(_: &Env) {
    let device = Device::open();
    let many = cpupeek_batch {
        nr_ops: u32::MAX,
        ..header(0)
    };
    let before = attribute("allocations");
    let (ours, all) = allocations_during(|| {
        for _ in 0..200 {
            let result = device.ioctl(BATCH, (&raw const many).expose_provenance());
            assert_eq!(result, Err(Errno(libc::E2BIG)));
        }
    });
    assert_eq!(ours, 0);
    assert!(all < 100, "{all} for 200 calls");
    assert_eq!(attribute("allocations"), before, "the module's own count");
}

/// How many objects the slab caches hold that groups come from.
fn slab_objects() -> i64 {
    let text = guest::read("/proc/slabinfo").unwrap();
    let accounted = ["kmalloc-cg-512 ", "kmalloc-cg-1k ", "kmalloc-cg-2k "];
    text.lines()
        .filter(|line| accounted.iter().any(|name| line.starts_with(name)))
        .map(|line| line.split_whitespace().nth(1).expect("counts"))
        .map(|active| active.parse::<i64>().expect("a count"))
        .sum()
}

/// Runs `action`, waits until nothing is in flight any more, and checks that everything that the
/// module has allocated, as often as `action` returns or more, was freed.
#[track_caller]
pub fn expect_balance(action: impl FnOnce() -> usize) {
    let trace = Trace::start(&[
        ("kmem/kmalloc", &called_from(ALLOCATE)),
        ("kmem/kfree", &called_from(FREE)),
    ]);
    let least = action();
    guest::wait_until("no descriptor is left", || guest::module_users() == 0);
    // What frees abandoned groups runs by itself, after their handlers.
    sleep(Duration::from_millis(200));
    let mut live = HashSet::new();
    let mut allocated = 0;
    for event in trace.stop() {
        let place = event.field("ptr").expect("of memory").to_owned();
        if event.name == "kmalloc" {
            allocated += 1;
            live.insert(place);
        } else {
            live.remove(&place);
        }
    }
    assert!(allocated >= least, "{allocated} allocations were seen");
    assert_eq!(live.len(), 0, "left of {allocated}");
}

fn killed_readers_leave_nothing(env: &Env) {
    with_blocked_cpu(|blocked| {
        // Enabling tracepoints patches code, for which every CPU is wanted.
        blocked.let_go();
        guest::set_read_timeout_ms(60_000);
        let batch = vec![Op::msr(blocked.cpu, TSC_AUX); 20];
        let abandoned = attribute("abandoned");
        let mut kills = 0;
        let mut slab = Vec::new();
        expect_balance(|| {
            env.repeat(50, || {
                hold::hold(blocked.cpu);
                for i in 0..20 {
                    let reader = sys::fork(|| {
                        let device = Device::open();
                        if i % 2 == 0 {
                            device.read(batch[0]);
                        } else {
                            device.batch(&batch);
                        }
                    });
                    wait_until_waiting(reader);
                    reader.kill(libc::SIGKILL);
                    assert_eq!(reader.wait(), Exit::Signal(libc::SIGKILL));
                }
                assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
                kills += 20;
                blocked.let_go();
                slab.push(slab_objects());
            });
            // A descriptor and a group each.
            2 * kills
        });
        assert_eq!(
            attribute("abandoned") - abandoned,
            kills as u64,
            "the module's own count"
        );
        // Per-CPU caches of the slab allocator make single objects noise.
        let grown = slab[slab.len() - 1] - slab[0];
        assert!(
            grown < (kills / 2).max(200) as i64,
            "slab objects: {slab:?}"
        );
    });
}

fn timed_out_readers_leave_nothing(_: &Env) {
    with_blocked_cpu(|blocked| {
        blocked.let_go();
        guest::set_read_timeout_ms(1);
        expect_balance(|| {
            hold::hold(blocked.cpu);
            let device = Device::open();
            let asked = Op::msr(blocked.cpu, TSC_AUX);
            for _ in 0..10 {
                device.read(asked).expect_error(&asked, libc::ETIME);
            }
            assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
            blocked.let_go();
            10
        });
    });
}
