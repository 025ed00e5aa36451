// SPDX-License-Identifier: GPL-2.0

//! The allowlist is replaced whole, or not at all.

use cpupeek_client::uapi::cpupeek_allow;
use cpupeek_selftests::device::{sized, Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno, Pages, PAGE};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::tests;
use crate::known;
use crate::policy::{
    address, allow, allow_header, fields, get_allow, list, marked, range, set_allow, Narrow, Range,
    GET_ALLOW, NO_RANGE, SET_ALLOW,
};
use crate::who::{as_user, as_user_with, enter_namespaces, expect};

tests! {
    "lists";
    the_default_list_is_of_what_is_harmless: [],
    what_was_set_is_what_is_got: [],
    a_bad_range_is_named_and_nothing_changes: [],
    only_rawio_sets_lists: [],
    everybody_sees_the_list: [],
    lists_have_limits: [],
    malformed_headers: [],
    malformed_arrays: [],
}

fn same(one: &[Range], other: &[Range]) -> bool {
    one.iter().map(fields).eq(other.iter().map(fields))
}

/// Checks that the list is still `ranges`, with the number `generation`.
#[track_caller]
fn expect_unchanged(root: &Device, ranges: &[Range], generation: u64) {
    let (now, number) = get_allow(root);
    assert!(same(&now, ranges), "the list has changed");
    assert_eq!(number, generation);
    assert_eq!(guest::attribute("allow_generation"), generation);
    assert_eq!(guest::attribute("allow_ranges"), ranges.len() as u64);
}

fn the_default_list_is_of_what_is_harmless(env: &Env) {
    // As the module is loaded, not as the test before has left it.
    sys::unload_module(guest::MODULE).expect("nobody uses it");
    sys::load_module(&env.module, "").expect("loads");
    let root = Device::open();
    expect_unchanged(&root, &known::default_list(), 1);
}

fn what_was_set_is_what_is_got(_: &Env) {
    let root = Device::open();
    // Neither in order nor apart, and marks that need not be.
    let ranges = [
        marked(0xe7, 0xe8),
        range(TSC_AUX, TSC_AUX),
        marked(0xe8, 0xe8),
        marked(TSC_AUX, 0xc000_0104),
        range(0x277, 0x277),
    ];
    let before = get_allow(&root).1;
    let generation = set_allow(&root, &ranges).expect("a good list");
    assert_eq!(generation, before + 1);
    expect_unchanged(&root, &ranges, generation);
    assert_eq!(set_allow(&root, &[]), Ok(generation + 1));
    expect_unchanged(&root, &[], generation + 1);
    as_user(|| expect(&Device::open(), Op::msr(0, TSC_AUX), Err(libc::EACCES)));
}

fn a_bad_range_is_named_and_nothing_changes(_: &Env) {
    let root = Device::open();
    let good = [
        range(TSC_AUX, TSC_AUX),
        marked(0xe7, 0xe8),
        range(0x277, 0x277),
    ];
    let generation = set_allow(&root, &good).expect("a good list");
    let odd = |flags, reserved| Range {
        flags,
        reserved,
        ..range(0x277, 0x277)
    };
    let cases = [
        (range(2, 1), libc::EINVAL),
        (range(u32::MAX, 0), libc::EINVAL),
        (odd(2, 0), libc::EINVAL),
        (odd(1 << 31, 0), libc::EINVAL),
        (odd(0, 1), libc::EINVAL),
        (range(0xc000_0082, 0xc000_0082), libc::EACCES),
        (marked(0xc000_0082, 0xc000_0082), libc::EACCES),
        (marked(0xc000_0080, 0xc000_0084), libc::EACCES),
        (marked(0, u32::MAX), libc::EACCES),
        (range(0xe8, 0xe8), libc::EPERM),
        (range(0x12345, 0x12345), libc::EPERM),
        (range(0x276, 0x277), libc::EPERM),
        (range(0x277, 0x278), libc::EPERM),
        (range(0xcd, 0xd0), libc::EPERM),
    ];
    for (bad, errno) in cases {
        for at in 0..=good.len() {
            let mut ranges = good.to_vec();
            ranges.insert(at, bad);
            // Only the first one counts.
            ranges.push(range(5, 4));
            assert_eq!(
                set_allow(&root, &ranges),
                Err((errno, at as u32)),
                "{bad:?}"
            );
            expect_unchanged(&root, &good, generation);
        }
    }
}

fn only_rawio_sets_lists(_: &Env) {
    let root = Device::open();
    let generation = get_allow(&root).1;
    let denied = |device: &Device| {
        assert_eq!(
            set_allow(device, &list(&[TSC_AUX])).map_err(|e| e.0),
            Err(libc::EPERM)
        );
        assert_eq!(set_allow(device, &[]).map_err(|e| e.0), Err(libc::EPERM));
    };
    as_user(|| denied(&Device::open()));
    as_user(|| {
        enter_namespaces();
        sys::set_capabilities(u64::MAX);
        denied(&Device::open());
    });
    as_user_with(!(1 << sys::CAP_SYS_RAWIO) & ((1 << 40) - 1), || {
        denied(&Device::open());
    });
    let narrowed = Device::open();
    Narrow::to_msrs(&[range(0, u32::MAX)])
        .apply(&narrowed)
        .expect("may be narrowed");
    denied(&narrowed);
    assert_eq!(get_allow(&root).1, generation, "nothing has changed");
    // The capability alone is enough, and so is a descriptor that was opened with it.
    as_user_with(1 << sys::CAP_SYS_RAWIO, || {
        assert_eq!(
            set_allow(&Device::open(), &list(&[TSC_AUX])),
            Ok(generation + 1)
        );
    });
    as_user(|| assert_eq!(set_allow(&root, &[]), Ok(generation + 2)));
}

fn everybody_sees_the_list(_: &Env) {
    allow(&list(&[TSC_AUX, 0x277]));
    as_user(|| {
        let (ranges, _) = get_allow(&Device::open());
        assert!(same(&ranges, &list(&[TSC_AUX, 0x277])));
    });
    // As many as there is room for, and not one byte more.
    let root = Device::open();
    for room in 0..4u32 {
        let mut ranges = [range(7, 7); 4];
        let mut header = allow_header(&ranges);
        header.ranges = ranges.as_mut_ptr().expose_provenance() as u64;
        header.nr_ranges = room;
        assert_eq!(root.ioctl(GET_ALLOW, address(&mut header)), Ok(()));
        assert_eq!((header.nr_ranges, header.bad_range), (2, NO_RANGE));
        for (i, range) in ranges.iter().enumerate() {
            let written = i < (room as usize).min(2);
            assert_eq!(range.lo != 7, written, "range {i} with room for {room}");
        }
    }
}

fn lists_have_limits(_: &Env) {
    let root = Device::open();
    let many = vec![range(TSC_AUX, TSC_AUX); 4097];
    set_allow(&root, &many[..4096]).expect("as many as there may be");
    let before = get_allow(&root);
    assert_eq!(before.0.len(), 4096);
    assert_eq!(set_allow(&root, &many).map_err(|e| e.0), Err(libc::E2BIG));
    // Spread over more pages of 4096 numbers than there is room for; none is anything known.
    let spread = |count: u32| -> Vec<Range> {
        (0..count)
            .map(|i| marked(0x2000_0000 + i * 4096, 0x2000_0000 + i * 4096))
            .collect()
    };
    let before = (get_allow(&root).1, guest::attribute("allow_ranges"));
    assert_eq!(set_allow(&root, &spread(257)), Err((libc::E2BIG, NO_RANGE)));
    assert_eq!(
        set_allow(&root, &[marked(0x2000_0000, 0x3000_0000)]),
        Err((libc::E2BIG, NO_RANGE))
    );
    assert_eq!(
        (get_allow(&root).1, guest::attribute("allow_ranges")),
        before
    );
    set_allow(&root, &spread(256)).expect("as wide as it may be");
    as_user(|| {
        let device = Device::open();
        for range in spread(256) {
            let result = device.read(Op::msr(0, range.lo)).result();
            assert_ne!(result, Err(Errno(libc::EACCES)));
            let beside = device.read(Op::msr(0, range.lo + 1)).result();
            assert_eq!(beside, Err(Errno(libc::EACCES)));
        }
    });
}

fn malformed_headers(_: &Env) {
    let root = Device::open();
    let ranges = list(&[TSC_AUX]);
    let before = get_allow(&root);
    let size = size_of::<cpupeek_allow>();
    for cmd in [SET_ALLOW, GET_ALLOW] {
        let try_it = |change: fn(&mut cpupeek_allow)| {
            let mut ranges = ranges.clone();
            let mut header = allow_header(&ranges);
            header.ranges = ranges.as_mut_ptr().expose_provenance() as u64;
            change(&mut header);
            root.ioctl(cmd, address(&mut header))
                .map_err(|error| error.0)
        };
        assert_eq!(try_it(|h| h.size = 0), Err(libc::EINVAL));
        assert_eq!(try_it(|h| h.size = 31), Err(libc::EINVAL));
        assert_eq!(try_it(|h| h.size = 1 << 20), Err(libc::E2BIG));
        assert_eq!(try_it(|h| h.flags = 1), Err(libc::EINVAL));
        assert_eq!(try_it(|h| h.flags = 1 << 31), Err(libc::EINVAL));
        assert_eq!(try_it(|h| h.ranges = 16), Err(libc::EFAULT));
        assert_eq!(try_it(|h| h.ranges = !0 << 47), Err(libc::EFAULT));
        for short in [0, 8, size - 1] {
            let mut header = allow_header(&ranges);
            assert_eq!(
                root.ioctl(sized(cmd, short), address(&mut header)),
                Err(Errno(libc::EINVAL))
            );
        }
        for bad in [0, 1, usize::MAX, 1 << 63] {
            assert_eq!(root.ioctl(cmd, bad), Err(Errno(libc::EFAULT)));
        }
        // A longer structure is fine if what is not known is zero.
        let pages = Pages::new(1, false);
        for (last, expected) in [(0u8, Ok(())), (1, Err(Errno(libc::E2BIG)))] {
            let mut header = allow_header(&before.0);
            header.size = size as u32 + 8;
            pages.write(0, header);
            pages.write(size + 7, last);
            let result = root.ioctl(sized(cmd, size + 8), pages.address(0));
            assert_eq!(result, expected);
        }
    }
    // The array ends where memory ends.
    let pages = Pages::new(2, false);
    pages.protect(1, libc::PROT_NONE);
    let last = PAGE - size_of::<Range>();
    pages.write(last, range(TSC_AUX, TSC_AUX));
    let mut header = allow_header(&ranges);
    header.ranges = pages.address(last) as u64;
    assert_eq!(root.ioctl(SET_ALLOW, address(&mut header)), Ok(()));
    header.ranges += 8;
    assert_eq!(
        root.ioctl(SET_ALLOW, address(&mut header)),
        Err(Errno(libc::EFAULT))
    );
}

/// Makes ranges that are more or less what they may be.
struct Ranges {
    random: Random,
    never: Vec<u32>,
    free: Vec<u32>,
    guarded: Vec<u32>,
}

impl Ranges {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            never: known::never(),
            free: known::free().collect(),
            guarded: known::guarded().collect(),
        }
    }

    fn number(&mut self) -> u32 {
        let random = &mut self.random;
        match random.below(4) {
            0 => random.next() as u32,
            1 => {
                let near = random.choose(&self.never);
                near.wrapping_add(random.below(3) as u32).wrapping_sub(1)
            }
            2 => random.choose(&self.free),
            _ => random.choose(&self.guarded),
        }
    }

    fn range(&mut self) -> Range {
        let lo = self.number();
        let hi = match self.random.below(4) {
            0 => self.number(),
            1 => lo.wrapping_sub(1),
            2 => lo.saturating_add(self.random.below(5000) as u32),
            _ => lo,
        };
        let (flags, reserved) = match self.random.below(16) {
            0 => (self.random.next() as u32, 0),
            1 => (1, self.random.next() as u32),
            2..=6 => (0, 0),
            _ => (1, 0),
        };
        Range {
            lo,
            hi,
            flags,
            reserved,
        }
    }
}

fn malformed_arrays(env: &Env) {
    let root = Device::open();
    let mut random = Ranges::new(env.seed);
    let mut current = get_allow(&root);
    let (mut accepted, mut refused) = (0, 0);
    while refused < 10_000 {
        let count = 1 + random.random.below(8);
        let ranges: Vec<Range> = (0..count).map(|_| random.range()).collect();
        let bad = ranges
            .iter()
            .enumerate()
            .find_map(|(i, range)| Some((known::refusal(range)?, i as u32)));
        match (set_allow(&root, &ranges), bad) {
            (Ok(generation), None) => {
                assert_eq!(generation, current.1 + 1);
                current = (ranges, generation);
                accepted += 1;
            }
            (Err(found), Some(expected)) => {
                assert_eq!(found, expected, "{ranges:?}");
                refused += 1;
            }
            // Of good ranges, one may be too long for the table.
            (Err((libc::E2BIG, NO_RANGE)), None) => refused += 1,
            (found, expected) => panic!("{found:?}, not {expected:?}: {ranges:?}"),
        }
        if refused % 100 == 0 {
            expect_unchanged(&root, &current.0, current.1);
        }
    }
    expect_unchanged(&root, &current.0, current.1);
    println!("{accepted} were good, {refused} were refused");
}
