// SPDX-License-Identifier: GPL-2.0

//! A descriptor can be narrowed, and never widened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cpupeek_client::uapi::{self, cpupeek_narrow};
use cpupeek_selftests::device::{sized, Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::tests;
use crate::policy::{address, range, refusals, set_allow, Narrow, Plan, Range, NARROW};
use crate::who::{as_user, ask, expect, outcome};

tests! {
    "narrow";
    to_registers_cpus_and_no_cpuid: [Cpus],
    a_user_can_narrow_too: [Cpus],
    never_wider: [Cpus],
    by_several_threads_at_once: [Cpus],
    plans_made_later_are_narrow: [],
    it_goes_with_the_descriptor: [Cpus],
    a_narrowed_descriptor_sets_no_policy: [],
    malformed: [],
    on_the_callers_own_cpu: [Cpus],
}

const PAT: u32 = 0x277;

fn to_registers_cpus_and_no_cpuid(_: &Env) {
    let device = Device::open();
    expect(&device, Op::msr(0, PAT), Ok(()));
    Narrow::to_msrs(&[range(TSC_AUX, TSC_AUX)])
        .apply(&device)
        .expect("NARROW");
    expect(&device, Op::msr(0, PAT), Err(libc::EACCES));
    expect(&device, Op::msr(1, TSC_AUX), Ok(()));
    expect(&device, Op::cpuid(1, 0, 0), Ok(()));

    let device = Device::open();
    Narrow::to_cpus(&[1]).apply(&device).expect("NARROW");
    expect(&device, Op::msr(0, PAT), Err(libc::EPERM));
    expect(&device, Op::cpuid(0, 0, 0), Err(libc::EPERM));
    expect(&device, Op::msr(1, PAT), Ok(()));
    expect(&device, Op::cpuid(1, 0, 0), Ok(()));
    Narrow::to_cpus(&[]).apply(&device).expect("NARROW");
    for cpu in guest::online().into_iter().chain([SELF]) {
        let asked = Op::cpuid(cpu, 0, 0);
        device.read(asked).expect_error(&asked, libc::EPERM);
    }

    let device = Device::open();
    Narrow::no_cpuid().apply(&device).expect("NARROW");
    assert_eq!(
        device.read(Op::cpuid(0, 0, 0)).result(),
        Err(Errno(libc::EACCES))
    );
    assert_eq!(device.read(Op::msr(0, PAT)).result(), Ok(()));
    Narrow::to_msrs(&[]).apply(&device).expect("NARROW");
    assert_eq!(
        device.read(Op::msr(0, PAT)).result(),
        Err(Errno(libc::EACCES))
    );
}

fn a_user_can_narrow_too(_: &Env) {
    as_user(|| {
        let device = Device::open();
        Narrow::to_msrs(&[range(0, u32::MAX)])
            .apply(&device)
            .expect("NARROW");
        expect(&device, Op::msr(0, 0xe8), Err(libc::EACCES));
        expect(&device, Op::msr(0, TSC_AUX), Ok(()));
        let to = Narrow::to_msrs(&[range(PAT, PAT)]).and(Narrow::to_cpus(&[0]));
        to.apply(&device).expect("NARROW");
        expect(&device, Op::msr(0, TSC_AUX), Err(libc::EACCES));
        expect(&device, Op::msr(0, PAT), Ok(()));
        expect(&device, Op::msr(1, PAT), Err(libc::EPERM));
    });
}

/// What a descriptor may do, by the plainest model of it.
struct Model {
    regs: Vec<u32>,
    cpus: Vec<u32>,
    cpuid: bool,
}

fn never_wider(env: &Env) {
    let regs = [
        PAT,
        TSC_AUX,
        0xe7,
        0xe8,
        0x10,
        0xc000_0080,
        0xc000_0082,
        0x1b,
    ];
    let mut random = Random::new(env.seed);
    for _ in 0..100 {
        let device = Device::open();
        let mut model = Model {
            regs: regs.to_vec(),
            cpus: guest::online(),
            cpuid: true,
        };
        for _ in 0..5 {
            let mut to = Narrow::default();
            if random.below(3) != 0 {
                let ranges: Vec<Range> = (0..random.below(4) + 1)
                    .map(|_| {
                        let (one, other) = (random.choose(&regs), random.choose(&regs));
                        range(one.min(other), one.max(other))
                    })
                    .collect();
                let inside = |reg: &u32| ranges.iter().any(|r| r.lo <= *reg && *reg <= r.hi);
                model.regs.retain(inside);
                to = to.and(Narrow::to_msrs(&ranges));
            }
            if random.below(3) == 0 {
                let cpus: Vec<u32> = (0..200).filter(|_| random.below(4) != 0).collect();
                model.cpus.retain(|cpu| cpus.contains(cpu));
                to = to.and(Narrow::to_cpus(&cpus));
            }
            if random.below(10) == 0 {
                model.cpuid = false;
                to = to.and(Narrow::no_cpuid());
            }
            let expected = if to.flags == 0 {
                Err(Errno(libc::EINVAL))
            } else {
                Ok(())
            };
            assert_eq!(to.apply(&device), expected);

            let mut ops = Vec::new();
            for cpu in guest::online() {
                ops.extend(regs.iter().map(|&reg| Op::msr(cpu, reg)));
                ops.push(Op::cpuid(cpu, 0, 0));
            }
            let plan = Plan::new(&device, &ops).run();
            for ((asked, op), result) in ops.iter().zip(device.batch(&ops)).zip(&plan) {
                let is_msr = asked.kind == cpupeek_selftests::device::MSR;
                let register = if is_msr {
                    model.regs.contains(&asked.reg)
                } else {
                    model.cpuid
                };
                let error = match (register, model.cpus.contains(&asked.cpu)) {
                    (false, _) => libc::EACCES,
                    (true, false) => libc::EPERM,
                    (true, true) => 0,
                };
                assert_eq!(op.status, -error, "{asked:?}");
                assert_eq!(result.status, -error, "a plan's {asked:?}");
            }
        }
    }
}

/// Each thread takes another register away, at the same moment as the others. None comes back.
fn by_several_threads_at_once(_: &Env) {
    let regs = [PAT, TSC_AUX, 0xe7, 0x10];
    let cpus = guest::online();
    for round in 0..100 {
        let device = Device::open();
        let waiting = AtomicUsize::new(regs.len());
        thread::scope(|scope| {
            for (i, reg) in regs.into_iter().enumerate() {
                let (device, waiting, cpu) = (&device, &waiting, cpus[i % cpus.len()]);
                scope.spawn(move || {
                    sys::pin(&[cpu]).expect("it is online");
                    let but = Narrow::to_msrs(&[range(0, reg - 1), range(reg + 1, u32::MAX)]);
                    waiting.fetch_sub(1, Ordering::SeqCst);
                    while waiting.load(Ordering::SeqCst) != 0 {
                        thread::yield_now();
                    }
                    but.apply(device).expect("NARROW");
                });
            }
        });
        for reg in regs {
            let asked = Op::msr(0, reg);
            let status = device.read(asked).status;
            assert_eq!(status, -libc::EACCES, "round {round}: {asked:?}");
        }
    }
}

fn plans_made_later_are_narrow(_: &Env) {
    let device = Device::open();
    let ops = [Op::msr(0, PAT), Op::msr(0, TSC_AUX), Op::cpuid(0, 0, 0)];
    let before = Plan::new(&device, &ops);
    let to = Narrow::to_msrs(&[range(TSC_AUX, TSC_AUX)]).and(Narrow::no_cpuid());
    to.apply(&device).expect("NARROW");
    let after = Plan::new(&device, &ops);
    let outcomes = |plan: &Plan| plan.run().iter().map(outcome).collect::<Vec<_>>();
    let refused = Err(Errno(libc::EACCES));
    assert_eq!(outcomes(&after), [refused, Ok(()), refused]);
    assert_eq!(
        outcomes(&before),
        [Ok(()); 3],
        "whoever has this plan had the rights"
    );
}

fn it_goes_with_the_descriptor(_: &Env) {
    let device = Device::open();
    let other = Device::open();
    let check = |device: &Device| {
        expect(device, Op::msr(0, PAT), Err(libc::EACCES));
        expect(device, Op::msr(1, TSC_AUX), Err(libc::EPERM));
        expect(device, Op::msr(0, TSC_AUX), Ok(()));
    };
    // The child narrows it for the parent too, since it is the same.
    let child = sys::fork(|| {
        let to = Narrow::to_msrs(&[range(TSC_AUX, TSC_AUX)]).and(Narrow::to_cpus(&[0]));
        to.apply(&device).expect("NARROW");
        check(&device);
    });
    child.expect_success();
    check(&device);
    let (here, there) = sys::socket_pair();
    sys::send_fd(&here, device.fd());
    let child = sys::fork(|| {
        let received = Device::from(sys::receive_fd(&there));
        check(&received);
        // Nothing brings it back.
        let all: Vec<u32> = (0..64).collect();
        let to = Narrow::to_msrs(&[range(0, u32::MAX)]).and(Narrow::to_cpus(&all));
        to.apply(&received).expect("NARROW");
        check(&received);
    });
    child.expect_success();
    // A descriptor of somebody else is none of this.
    expect(&other, Op::msr(1, PAT), Ok(()));
}

fn a_narrowed_descriptor_sets_no_policy(_: &Env) {
    for to in [
        Narrow::to_msrs(&[range(0, u32::MAX)]),
        Narrow::to_cpus(&guest::online()),
        Narrow::no_cpuid(),
    ] {
        let device = Device::open();
        assert!(refusals(&device).is_ok());
        to.apply(&device).expect("NARROW");
        assert_eq!(set_allow(&device, &[]).map_err(|e| e.0), Err(libc::EPERM));
        assert_eq!(refusals(&device).err(), Some(Errno(libc::EPERM)));
    }
}

fn malformed(_: &Env) {
    let device = Device::open();
    let all = uapi::CPUPEEK_NARROW_MSRS | uapi::CPUPEEK_NARROW_CPUS | uapi::CPUPEEK_NARROW_NO_CPUID;
    let bad = |change: fn(&mut Narrow)| {
        let mut narrow = Narrow::to_msrs(&[range(PAT, PAT)]).and(Narrow::to_cpus(&[0]));
        change(&mut narrow);
        narrow.apply(&device).map_err(|error| error.0)
    };
    assert_eq!(bad(|n| n.flags = 0), Err(libc::EINVAL));
    assert_eq!(bad(|n| n.flags |= 8), Err(libc::EINVAL));
    assert_eq!(bad(|n| n.flags |= 1 << 31), Err(libc::EINVAL));
    assert_eq!(
        bad(|n| n.flags &= !uapi::CPUPEEK_NARROW_MSRS),
        Err(libc::EINVAL)
    );
    assert_eq!(
        bad(|n| n.flags &= !uapi::CPUPEEK_NARROW_CPUS),
        Err(libc::EINVAL)
    );
    assert_eq!(bad(|n| n.ranges.push(range(2, 1))), Err(libc::EINVAL));
    assert_eq!(bad(|n| n.ranges[0].flags = 1), Err(libc::EINVAL));
    assert_eq!(bad(|n| n.ranges[0].reserved = 1), Err(libc::EINVAL));
    assert_eq!(
        bad(|n| n.ranges = vec![range(1, 1); 4097]),
        Err(libc::E2BIG)
    );

    let ranges = [range(PAT, PAT)];
    let cpus = [1u64; 2];
    let raw = |change: fn(&mut cpupeek_narrow)| {
        let mut header = cpupeek_narrow {
            size: size_of::<cpupeek_narrow>() as u32,
            flags: all,
            nr_ranges: 1,
            cpus_size: 16,
            ranges: ranges.as_ptr().expose_provenance() as u64,
            cpus: cpus.as_ptr().expose_provenance() as u64,
        };
        change(&mut header);
        device
            .ioctl(NARROW, address(&mut header))
            .map_err(|error| error.0)
    };
    assert_eq!(raw(|h| h.size = 31), Err(libc::EINVAL));
    assert_eq!(raw(|h| h.size = 1 << 20), Err(libc::E2BIG));
    assert_eq!(raw(|h| h.cpus_size = 4), Err(libc::EINVAL));
    assert_eq!(raw(|h| h.cpus_size = u32::MAX), Err(libc::EINVAL));
    assert_eq!(raw(|h| h.nr_ranges = u32::MAX), Err(libc::E2BIG));
    let no_msrs = |h: &mut cpupeek_narrow| {
        h.flags &= !uapi::CPUPEEK_NARROW_MSRS;
        h.nr_ranges = 0;
    };
    let no_cpus = |h: &mut cpupeek_narrow| {
        h.flags &= !uapi::CPUPEEK_NARROW_CPUS;
        h.cpus_size = 0;
    };
    assert_eq!(raw(no_msrs), Err(libc::EINVAL), "ranges without the flag");
    assert_eq!(raw(no_cpus), Err(libc::EINVAL), "CPUs without the flag");
    assert_eq!(raw(|h| h.ranges = 16), Err(libc::EFAULT));
    assert_eq!(raw(|h| h.cpus = 16), Err(libc::EFAULT));
    assert_eq!(device.ioctl(sized(NARROW, 31), 0), Err(Errno(libc::EINVAL)));
    // None of that has taken anything away.
    for cpu in guest::online() {
        expect(&device, Op::msr(cpu, TSC_AUX), Ok(()));
        expect(&device, Op::cpuid(cpu, 0, 0), Ok(()));
    }
    assert!(refusals(&device).is_ok());
    // A bitmap may be longer than there are CPUs.
    let long = Narrow {
        flags: uapi::CPUPEEK_NARROW_CPUS,
        ranges: Vec::new(),
        cpus: vec![!0; 4096],
    };
    assert_eq!(long.apply(&device), Ok(()));
    assert_eq!(ask(&device, Op::msr(1, TSC_AUX)), Ok(()));
}

fn on_the_callers_own_cpu(_: &Env) {
    let device = Device::open();
    Narrow::to_cpus(&[1]).apply(&device).expect("NARROW");
    sys::pin(&[0]).expect("it is online");
    expect(&device, Op::msr(SELF, TSC_AUX), Err(libc::EPERM));
    expect(&device, Op::msr(0, TSC_AUX), Err(libc::EPERM));
    sys::pin(&[1]).expect("it is online");
    expect(&device, Op::msr(SELF, TSC_AUX), Ok(()));
}
