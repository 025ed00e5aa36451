// SPDX-License-Identifier: GPL-2.0
//! Rewrites what QEMU tells KVM of a CPU's CPUID leaves.

use crate::kvm::{CpuidEntry, CPUID_INDEXED};

/// EAX of this leaf says which of KVM's paravirtual features exist.
const KVM_FEATURES: u32 = 0x4000_0001;
/// PV_UNHALT, PV_SEND_IPI and PV_SCHED_YIELD: those that make hypercalls.
const HYPERCALLS: u32 = 1 << 7 | 1 << 11 | 1 << 13;

/// `register = register & keep | set` in one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The leaf.
    pub leaf: u32,
    /// The sub-leaf; `None` is every one.
    pub subleaf: Option<u32>,
    /// 0 to 3 for EAX to EDX.
    pub register: usize,
    /// Bits that stay.
    pub keep: u32,
    /// Bits that are set.
    pub set: u32,
}

/// The entries of a CPU with `rules` applied, in their order.
pub fn rewrite(entries: &[CpuidEntry], rules: &[Rule]) -> Vec<CpuidEntry> {
    let mut all = entries.to_vec();
    for rule in rules {
        let mut found = false;
        for entry in all.iter_mut().filter(|entry| applies(rule, entry)) {
            entry.registers[rule.register] = entry.registers[rule.register] & rule.keep | rule.set;
            found = true;
        }
        if !found {
            let mut entry = CpuidEntry {
                function: rule.leaf,
                index: rule.subleaf.unwrap_or(0),
                flags: rule.subleaf.map_or(0, |_| CPUID_INDEXED),
                ..CpuidEntry::default()
            };
            entry.registers[rule.register] = rule.set;
            all.push(entry);
        }
    }
    if vendor(&all) != vendor(entries) {
        // Vendors differ in the instruction for a hypercall. KVM would patch the guest's text, which is read-only.
        for entry in all.iter_mut().filter(|e| e.function == KVM_FEATURES) {
            entry.registers[0] &= !HYPERCALLS;
        }
    }
    all
}

fn applies(rule: &Rule, entry: &CpuidEntry) -> bool {
    entry.function == rule.leaf
        && rule.subleaf.is_none_or(|subleaf| {
            entry.index == subleaf || entry.flags & CPUID_INDEXED == 0 && subleaf == 0
        })
}

fn vendor(entries: &[CpuidEntry]) -> Option<[u32; 3]> {
    let leaf = entries.iter().find(|entry| entry.function == 0)?;
    let [_, b, c, d] = leaf.registers;
    Some([b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: u32, index: u32, flags: u32, registers: [u32; 4]) -> CpuidEntry {
        CpuidEntry {
            function,
            index,
            flags,
            registers,
            ..CpuidEntry::default()
        }
    }

    #[test]
    fn bits_are_set_and_cleared() {
        let rules = [Rule {
            leaf: 6,
            subleaf: None,
            register: 2,
            keep: !2,
            set: 1,
        }];
        let all = rewrite(&[entry(6, 0, 0, [9, 9, 0x12, 9])], &rules);
        assert_eq!(all[0].registers, [9, 9, 0x11, 9]);
    }

    #[test]
    fn missing_leaves_appear_once() {
        let rule = |register, set| Rule {
            leaf: 0x1a,
            subleaf: Some(0),
            register,
            keep: 0,
            set,
        };
        let all = rewrite(&[], &[rule(0, 0x4000_0001), rule(1, 5)]);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].registers, [0x4000_0001, 5, 0, 0]);
    }

    #[test]
    fn another_vendor_makes_no_hypercalls() {
        let entries = [
            entry(0, 0, 0, [13, 1, 2, 3]),
            entry(KVM_FEATURES, 0, 0, [!0, 0, 0, 0]),
        ];
        let rule = Rule {
            leaf: 0,
            subleaf: None,
            register: 1,
            keep: 0,
            set: 7,
        };
        assert_eq!(rewrite(&entries, &[rule])[1].registers[0], !HYPERCALLS);
        assert_eq!(rewrite(&entries, &[])[1].registers[0], !0);
    }
}
