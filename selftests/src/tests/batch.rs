// SPDX-License-Identifier: GPL-2.0

//! Many operations at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::read::{faulting_msr, pluggable_cpu};
use super::{tests, Env};
use crate::device::{cpupeek_batch, cpupeek_tsc_pair, header, uapi, Device, Op};
use crate::device::{BATCH, OP_SIZE, POISON, SELF, TSC_AUX};
use crate::guest;
use crate::sys::{self, Errno, Pages};
use crate::util::Random;

tests! {
    "batch";
    nothing_succeeds: [],
    most: [],
    one_more_than_most: [],
    random_ones_are_as_expected: [],
    sizes_up_and_down_on_one_descriptor: [],
    many_rounds_are_in_order: [Cpus],
    tsc_pairs_enclose_answers: [],
    tsc_pair_of_a_cpu_without_answer_is_zero: [Hotplug],
    flipped_kind_never_shows_an_msr: [],
    flipped_cpu_and_reserved_field: [],
}

fn nothing_succeeds(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    for address in [0, 8, 1 << 63, u64::MAX] {
        for flags in [0, uapi::CPUPEEK_BATCH_SLEEP, uapi::CPUPEEK_BATCH_SPIN] {
            let mut header = header(0);
            header.ops = address;
            header.flags = flags;
            assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
            header.flags |= uapi::CPUPEEK_BATCH_TSC_PAIR;
            header.tsc = address;
            assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
        }
    }
}

fn most(_: &Env) {
    let device = Device::open();
    let count = device.info().max_batch_ops as usize;
    let cpus = guest::online();
    let ops: Vec<Op> = (0..count)
        .map(|i| match i % 7 {
            3 => Op::cpuid(cpus[i / 7 % cpus.len()], 1, 0),
            _ => Op::msr(cpus[i % cpus.len()], TSC_AUX),
        })
        .collect();
    let ids: Vec<u32> = cpus
        .iter()
        .map(|&cpu| device.read(Op::cpuid(cpu, 1, 0)).words()[1] >> 24)
        .collect();
    for (asked, op) in ops.iter().zip(device.batch(&ops)) {
        op.expect_answer(asked);
        if asked.reg == TSC_AUX {
            assert_eq!(op.value() & 0xfff, u64::from(asked.cpu));
        } else {
            let index = cpus.iter().position(|&cpu| cpu == asked.cpu).unwrap();
            assert_eq!(op.words()[1] >> 24, ids[index]);
        }
    }
}

fn one_more_than_most(_: &Env) {
    let device = Device::open();
    let max = device.info().max_batch_ops;
    let pages = Pages::new(1, false);
    for count in [
        max + 1,
        2 * max,
        1 << 31,
        u32::MAX / OP_SIZE as u32,
        u32::MAX,
    ] {
        for op_size in [OP_SIZE as u32, 4096, u32::MAX - 7] {
            let header = cpupeek_batch {
                nr_ops: count,
                op_size,
                ops: pages.address(0) as u64,
                ..header(0)
            };
            let result = device.ioctl(BATCH, (&raw const header).expose_provenance());
            assert_eq!(result, Err(Errno(libc::E2BIG)), "{count} of {op_size}");
        }
    }
}

/// An operation, and what has to become of it.
#[derive(Clone, Copy)]
enum Expected {
    Error(i32),
    Number(u32),
    Words([u32; 4]),
}

/// Knows what a random operation's answer is.
struct Oracle {
    online: Vec<u32>,
    absent: Vec<u32>,
    fault: Option<u32>,
    /// CPUID leaf 4, subleaf 0 to 2, of each CPU online.
    leaves: Vec<[[u32; 4]; 3]>,
}

impl Oracle {
    fn new() -> Self {
        let online = guest::online();
        let leaves = online.iter().map(|&cpu| {
            sys::pin(&[cpu]).unwrap();
            [0, 1, 2].map(|subleaf| {
                let regs = std::arch::x86_64::__cpuid_count(4, subleaf);
                [regs.eax, regs.ebx, regs.ecx, regs.edx]
            })
        });
        let leaves = leaves.collect();
        sys::pin(&online).unwrap();
        let limit = Device::open().info().nr_cpu_ids;
        let mut absent = guest::offline();
        absent.extend([limit, limit + 7, 4096, SELF - 1]);
        Self {
            online,
            absent,
            fault: faulting_msr(),
            leaves,
        }
    }

    fn choose(&self, random: &mut Random) -> (Op, Expected) {
        let cpu = random.choose(&self.online);
        let (mut op, expected) = match random.below(8) {
            0..4 => (Op::msr(cpu, TSC_AUX), Expected::Number(cpu)),
            4 | 5 => {
                let subleaf = random.below(3) as usize;
                let index = self.online.iter().position(|&c| c == cpu).unwrap();
                let op = Op::cpuid(cpu, 4, subleaf as u32);
                (op, Expected::Words(self.leaves[index][subleaf]))
            }
            6 => match self.fault {
                Some(reg) => (Op::msr(cpu, reg), Expected::Error(libc::EIO)),
                None => (Op::msr(cpu, TSC_AUX), Expected::Number(cpu)),
            },
            _ => {
                let cpu = random.choose(&self.absent);
                (Op::msr(cpu, TSC_AUX), Expected::Error(libc::ENXIO))
            }
        };
        // The value is poisoned with what the operation before it may have left.
        op.tsc = random.next();
        op.status = random.next() as i32;
        if random.below(20) != 0 {
            return (op, expected);
        }
        match random.below(3) {
            0 => op.kind = 3 + random.below(1000) as u16,
            1 => op.reserved = 1 + random.below(u32::MAX.into()) as u32,
            _ => op.flags = 2 << random.below(14),
        }
        (op, Expected::Error(libc::EINVAL))
    }
}

#[track_caller]
fn expect(asked: &Op, op: &Op, expected: Expected) {
    match expected {
        Expected::Error(error) => op.expect_error(asked, error),
        Expected::Number(number) => {
            op.expect_answer(asked);
            assert_eq!(op.value() & 0xfff, number.into(), "{op:?}");
        }
        Expected::Words(words) => {
            op.expect_answer(asked);
            assert_eq!(op.words(), words, "{op:?}");
        }
    }
}

fn random_ones_are_as_expected(env: &Env) {
    let mut random = Random::new(env.seed);
    let oracle = Oracle::new();
    let mut device = Device::open();
    let start = Instant::now();
    let mut batches = 0u64;
    while start.elapsed() < env.soak / 2 {
        batches += 1;
        if random.below(10) == 0 {
            device = Device::open();
        }
        let most = random.choose(&[4, 40, 400, 4000]);
        let count = random.below(most) as usize;
        let (ops, expected): (Vec<_>, Vec<_>) =
            (0..count).map(|_| oracle.choose(&mut random)).unzip();
        let header = cpupeek_batch {
            flags: random.choose(&[0, uapi::CPUPEEK_BATCH_SLEEP, uapi::CPUPEEK_BATCH_SPIN]),
            timeout_ms: random.choose(&[0, 60_000, u32::MAX]),
            ..header(0)
        };
        let answers = device.batch_with(header, &ops);
        for ((asked, op), expected) in ops.iter().zip(&answers).zip(expected) {
            expect(asked, op, expected);
        }
    }
    eprintln!("{batches} batches");
}

fn sizes_up_and_down_on_one_descriptor(env: &Env) {
    let mut random = Random::new(env.seed);
    let oracle = Oracle::new();
    let device = Device::open();
    // Memory kept from one call must not show in the next: other CPUs, fewer or more of them.
    for count in [1, 2, 3, 500, 2, 1, 64, 65, 1000, 3, 0, 5, 10_000, 1, 2, 4] {
        for _ in 0..5 {
            let cpu = random.choose(&oracle.online);
            let (asked, expected) = oracle.choose(&mut random);
            expect(&asked, &device.read(asked), expected);
            let (ops, expected): (Vec<_>, Vec<_>) = (0..count)
                .map(|_| match random.below(2) {
                    0 => (Op::msr(cpu, TSC_AUX), Expected::Number(cpu)),
                    _ => oracle.choose(&mut random),
                })
                .unzip();
            let answers = device.batch(&ops);
            for ((asked, op), expected) in ops.iter().zip(&answers).zip(expected) {
                expect(asked, op, expected);
            }
        }
    }
}

fn many_rounds_are_in_order(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let per_cpu = 1000;
    let ops: Vec<Op> = (0..per_cpu * cpus.len())
        .map(|i| Op::msr(cpus[i % cpus.len()], TSC_AUX))
        .collect();
    let answers = device.batch(&ops);
    for (asked, op) in ops.iter().zip(&answers) {
        op.expect_answer(asked);
        assert_eq!(op.value() & 0xfff, asked.cpu.into());
    }
    // Each CPU has worked in the order in which it was asked.
    for &cpu in &cpus {
        let times = answers.iter().filter(|op| op.cpu == cpu).map(|op| op.tsc);
        assert!(times.is_sorted(), "CPU {cpu}");
    }
}

fn pairs_for(pages: &Pages, cpu: u32) -> cpupeek_tsc_pair {
    pages.read(cpu as usize * size_of::<cpupeek_tsc_pair>())
}

fn with_pairs(pages: &Pages) -> cpupeek_batch {
    cpupeek_batch {
        flags: uapi::CPUPEEK_BATCH_TSC_PAIR,
        tsc: pages.address(0) as u64,
        ..header(0)
    }
}

fn tsc_pairs_enclose_answers(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let pages = Pages::new(1, false);
    // Every set of CPUs, each of them with a few operations or many.
    for set in 1..1u32 << cpus.len().min(4) {
        for per_cpu in [1, 3, 200] {
            let chosen: Vec<u32> = (0..)
                .zip(&cpus)
                .filter(|(i, _)| set >> i & 1 != 0)
                .map(|(_, &cpu)| cpu)
                .collect();
            let ops: Vec<Op> = (0..per_cpu * chosen.len())
                .map(|i| Op::msr(chosen[i % chosen.len()], TSC_AUX))
                .collect();
            pages.fill(POISON);
            let answers = device.batch_with(with_pairs(&pages), &ops);
            for &cpu in &cpus {
                let pair = pairs_for(&pages, cpu);
                if !chosen.contains(&cpu) {
                    let poison = u64::from_ne_bytes([POISON; 8]);
                    assert_eq!((pair.start, pair.end), (poison, poison), "CPU {cpu}");
                    continue;
                }
                let of_cpu = || answers.iter().filter(|op| op.cpu == cpu);
                assert_eq!(of_cpu().count(), per_cpu);
                for op in of_cpu() {
                    assert!(
                        pair.start <= op.tsc && op.tsc <= pair.end,
                        "{pair:?} {op:?}"
                    );
                }
                assert_ne!(pair.start, 0);
            }
            let after = (cpus.len() * size_of::<cpupeek_tsc_pair>()).max(64);
            let rest = pages.bytes(after, pages.len() - after);
            assert!(
                rest.iter().all(|&byte| byte == POISON),
                "writes past the end"
            );
        }
    }
}

fn tsc_pair_of_a_cpu_without_answer_is_zero(_: &Env) {
    let device = Device::open();
    let cpu = pluggable_cpu();
    guest::set_online(cpu, false);
    let pages = Pages::new(1, false);
    pages.fill(POISON);
    let ops = [Op::msr(cpu, TSC_AUX), Op::msr(0, TSC_AUX)];
    let answers = device.batch_with(with_pairs(&pages), &ops);
    answers[0].expect_error(&ops[0], libc::ENXIO);
    answers[1].expect_answer(&ops[1]);
    let pair = pairs_for(&pages, cpu);
    assert_eq!((pair.start, pair.end), (0, 0));
    let pair = pairs_for(&pages, 0);
    assert!(0 < pair.start && pair.start <= answers[1].tsc && answers[1].tsc <= pair.end);
}

/// Runs batches over `count` operations in shared memory for a while, as another thread calls
/// `flip` on each of them all the time. `check` is told what the kernel has written.
fn while_flipping(
    env: &Env,
    device: &Device,
    count: usize,
    flip: impl Fn(&Pages, usize, u64) + Sync,
    check: impl Fn(&Op),
) {
    let pages = Pages::new((count * OP_SIZE).div_ceil(sys::PAGE), false);
    let headers = Pages::new(1, false);
    let mut header = header(count);
    header.ops = pages.address(0) as u64;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !over.load(Ordering::Relaxed) {
                (0..count).for_each(|i| flip(&pages, i * OP_SIZE, turn));
                turn += 1;
            }
        });
        let start = Instant::now();
        while start.elapsed() < env.soak / 2 {
            for i in 0..count {
                pages.write(i * OP_SIZE, Op::cpuid(0, 0, 0));
            }
            assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
            for i in 0..count {
                check(&pages.read(i * OP_SIZE));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

const OFFSET_CPU: usize = 0;
const OFFSET_KIND: usize = 4;
const OFFSET_REG: usize = 8;
const OFFSET_RESERVED: usize = 20;

/// The system call's entry: a kernel address, which no CPUID leaf shows.
const LSTAR: u32 = 0xc000_0082;

fn flipped_kind_never_shows_an_msr(env: &Env) {
    let secret = Device::open().msr(0, LSTAR);
    assert_ne!(secret, 0);
    sys::set_mode(crate::device::PATH, 0o666);
    sys::become_user(1000);
    let device = Device::open();
    let asked = Op::msr(0, LSTAR);
    device.read(asked).expect_error(&asked, libc::EACCES);
    while_flipping(
        env,
        &device,
        32,
        |pages, at, turn| {
            let kind = if turn % 2 == 0 {
                Op::msr(0, LSTAR)
            } else {
                Op::cpuid(0, 0, 0)
            };
            pages.write(at + OFFSET_KIND, kind.kind);
            pages.write(at + OFFSET_REG, kind.reg);
        },
        |op| {
            assert_ne!(op.value(), secret, "an MSR without the right to it");
            assert!([0, -libc::EACCES].contains(&op.status), "{op:?}");
            if op.status != 0 {
                assert_eq!((op.tsc, op.words()), (0, [0; 4]), "{op:?}");
            }
        },
    );
}

fn flipped_cpu_and_reserved_field(env: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let others = [SELF, SELF - 1, 1 << 20, device.info().nr_cpu_ids];
    let expected: Vec<[u32; 4]> = cpus
        .iter()
        .map(|&cpu| device.read(Op::cpuid(cpu, 0, 0)).words())
        .collect();
    while_flipping(
        env,
        &device,
        200,
        |pages, at, turn| {
            let choices = cpus.iter().chain(&others);
            let cpu = choices
                .copied()
                .cycle()
                .nth(turn as usize % 64 + at / OP_SIZE % 3);
            pages.write(at + OFFSET_CPU, cpu.unwrap());
            pages.write(at + OFFSET_RESERVED, (turn / 3 % 2) as u32);
        },
        |op| match -op.status {
            0 => assert!(expected.contains(&op.words()), "{op:?}"),
            libc::EINVAL | libc::ENXIO => {
                assert_eq!((op.tsc, op.words()), (0, [0; 4]), "{op:?}");
            }
            _ => panic!("{op:?}"),
        },
    );
}
