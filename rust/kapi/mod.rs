// SPDX-License-Identifier: GPL-2.0

//! The bottom layer: thin wrappers over kernel C that the `kernel` crate does not have yet.
//!
//! All of the module's `unsafe` code is here, and nothing above this layer sees `bindings`.

pub(crate) mod call_group;
pub(crate) mod claim;
pub(crate) mod compat;
pub(crate) mod completion;
pub(crate) mod cpu_files;
pub(crate) mod cpu_nodes;
pub(crate) mod cpu_timer;
pub(crate) mod csd;
pub(crate) mod errno;
pub(crate) mod events;
pub(crate) mod file;
pub(crate) mod hotplug;
pub(crate) mod misc;
pub(crate) mod pages;
#[cfg(CONFIG_PREEMPT_NOTIFIERS)]
pub(crate) mod preempt_notifier;
#[cfg(not(CONFIG_PREEMPT_NOTIFIERS))]
#[path = "no_preempt_notifier.rs"]
pub(crate) mod preempt_notifier;
pub(crate) mod rcu_arc;
pub(crate) mod reaper;
pub(crate) mod regs;
pub(crate) mod task;
pub(crate) mod ticker;
pub(crate) mod uapi;
pub(crate) mod user_ops;

/// bindgen's view of `helpers.c`. Wrapped here, used nowhere else.
#[expect(unreachable_pub, reason = "generated")]
#[allow(
    improper_ctypes,
    reason = "C structures that are empty in some configurations"
)]
mod helpers {
    use crate::kapi::uapi::{
        cpupeek_op,
        cpupeek_result, //
    };
    use kernel::bindings::*;
    use kernel::ffi;

    include!(concat!(env!("CPUPEEK_OBJ"), "/helpers_generated.rs"));
}
