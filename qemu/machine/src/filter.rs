// SPDX-License-Identifier: GPL-2.0
//! KVM's MSR filter: which registers leave for user space although KVM knows them.

use crate::kvm::{Filter, FilterRange, FILTER_BITS, FILTER_RANGES};

/// Registers close enough to share a bitmap, in which a cleared bit sends the access to user space.
#[derive(Debug, PartialEq, Eq)]
pub struct Cluster {
    /// FILTER_READ or FILTER_WRITE.
    pub flags: u32,
    /// The first register.
    pub base: u32,
    /// One bit per register.
    pub bitmap: Vec<u8>,
}

impl Cluster {
    fn bits(&self) -> u32 {
        self.bitmap.len() as u32 * 8
    }

    fn deny(&mut self, register: u32) {
        let bit = register - self.base;
        self.bitmap[bit as usize / 8] &= !(1 << (bit % 8));
    }

    fn covers(&self, register: u32) -> bool {
        register >= self.base && register - self.base < self.bits()
    }
}

/// Clusters of `registers`, which are sorted.
pub fn clusters(flags: u32, registers: impl IntoIterator<Item = u32>) -> Vec<Cluster> {
    let mut all: Vec<Cluster> = Vec::new();
    for register in registers {
        let start = register & !7;
        let fits = all.last().is_some_and(|c| register - c.base < FILTER_BITS);
        if !fits {
            all.push(Cluster {
                flags,
                base: start,
                bitmap: Vec::new(),
            });
        }
        if let Some(cluster) = all.last_mut() {
            let bytes = (register - cluster.base) as usize / 8 + 1;
            let bytes = bytes.max(cluster.bitmap.len());
            cluster.bitmap.resize(bytes, 0xff);
            cluster.deny(register);
        }
    }
    all
}

/// QEMU's filter with ours before it: KVM goes by the first range that covers a register.
///
/// # Safety
///
/// The bitmaps of `qemu` must be as long as its ranges say.
pub unsafe fn merge(qemu: &Filter, ours: &mut [Cluster]) -> Option<Filter> {
    let theirs = qemu.ranges.iter().filter(|range| range.nmsrs != 0);
    for range in theirs.clone() {
        for bit in 0..range.nmsrs {
            // SAFETY: `bit` is inside of the bitmap by the contract of this function.
            let allowed = unsafe { *range.bitmap.add(bit as usize / 8) } & (1 << (bit % 8)) != 0;
            let register = range.base.wrapping_add(bit);
            if allowed {
                continue;
            }
            let hidden = ours
                .iter_mut()
                .filter(|c| c.flags & range.flags != 0 && c.covers(register));
            hidden.for_each(|cluster| cluster.deny(register));
        }
    }
    let ranges: Vec<_> = ours
        .iter_mut()
        .map(|cluster| FilterRange {
            flags: cluster.flags,
            nmsrs: cluster.bits(),
            base: cluster.base,
            bitmap: cluster.bitmap.as_mut_ptr(),
        })
        .chain(theirs.copied())
        .collect();
    if ranges.len() > FILTER_RANGES {
        return None;
    }
    let mut filter = empty();
    filter.flags = qemu.flags;
    filter.ranges[..ranges.len()].copy_from_slice(&ranges);
    Some(filter)
}

/// A filter that allows everything.
pub fn empty() -> Filter {
    Filter {
        flags: 0,
        ranges: [FilterRange {
            flags: 0,
            nmsrs: 0,
            base: 0,
            bitmap: std::ptr::null_mut(),
        }; FILTER_RANGES],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvm::{FILTER_READ, FILTER_WRITE};

    #[test]
    fn near_registers_share_a_bitmap() {
        let all = clusters(FILTER_READ, [0xe7, 0xe8, 0x1b1, 0xc000_00e9, 0xc001_029b]);
        let bases: Vec<_> = all.iter().map(|c| c.base).collect();
        assert_eq!(bases, [0xe0, 0xc000_00e8, 0xc001_0298]);
        assert_eq!(all[0].bitmap[0], 0b0111_1111);
        assert_eq!(all[0].bitmap[1], 0b1111_1110);
        assert!(all.iter().all(|c| c.bits() <= FILTER_BITS));
    }

    #[test]
    fn a_cluster_is_never_too_long() {
        let all = clusters(FILTER_READ, [7, FILTER_BITS - 1, FILTER_BITS]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].bits(), FILTER_BITS);
    }

    #[test]
    fn what_qemu_filters_still_reaches_it() {
        let mut bitmap = [0xfe_u8];
        let mut qemu = empty();
        qemu.ranges[0] = FilterRange {
            flags: FILTER_READ,
            nmsrs: 1,
            base: 0x35,
            bitmap: bitmap.as_mut_ptr(),
        };
        let mut ours = clusters(FILTER_READ, [0x34, 0x40]);
        ours.extend(clusters(FILTER_WRITE, [0x34, 0x40]));
        // SAFETY: the bitmap has the one bit that its range names.
        let merged = unsafe { merge(&qemu, &mut ours) }.unwrap();
        assert_eq!(ours[0].bitmap[0], 0b1100_1111);
        assert_eq!(ours[1].bitmap[0], 0b1110_1111);
        assert_eq!(merged.ranges[2].base, 0x35);
        assert_eq!(merged.ranges[3].nmsrs, 0);
    }
}
