// SPDX-License-Identifier: GPL-2.0

//! cpupeek: reads model-specific registers and CPUID leaves of any CPU, asleep.
//!
//! Data flows from top to bottom, and every layer knows only those under it:
//!
//! - [`device`]: open, ioctl, user memory; [`policy`]: may this descriptor read that register;
//! - [`sampler`]: registers read again and again, for user space to look at;
//! - [`cache`]: named values of every CPU, with an age; sysfs shows them;
//! - [`engine`]: plan, one slice and one call per CPU, wait, gather; [`stats`]: what it did;
//! - [`kapi`]: thin wrappers over kernel C, and all of the `unsafe` code;
//! - [`logic`]: what needs no kernel at all, tested on the host.

mod cache;
mod device;
mod engine;
mod kapi;
#[expect(unreachable_pub, reason = "a crate of its own on the host")]
mod logic;
mod policy;
mod sampler;
mod stats;

use kapi::compat::parameter;
use kernel::{
    prelude::*,
    sync::Arc, //
};

module! {
    type: CpuPeek,
    name: "cpupeek",
    authors: ["The cpupeek developers"],
    description: "Read MSRs and CPUID leaves of any CPU, asleep",
    license: "GPL",
    params: {
        read_timeout_ms: u32 {
            default: 1000,
            description: "How long a single read waits at most, 1 to 3600000 ms (default 1000)",
        },
        probe_isolated: u32 {
            default: 0,
            description: "Not 0: find out at load what isolated CPUs have, so that they have named values (default 0)",
        },
        unprivileged_permille: u32 {
            default: 50,
            description: "How much of another CPU's time a user without CAP_SYS_RAWIO may use, 1 to 1000 permille (default 50)",
        },
        spin_min_us: u32 {
            default: 0,
            description: "How long callers spin at least before they sleep, 0 to 10000 us (default 0)",
        },
        spin_max_us: u32 {
            default: 100,
            description: "How long callers spin at most, 0 to 10000 us, 0 for never (default 100)",
        },
        cpu_word: u32 {
            default: 0,
            description: "Not 0: threads can have the number of their CPU in their memory; every task switch costs a little more (default 0)",
        },
    },
}

/// The loaded module. Its fields are dropped in this order.
#[pin_data]
struct CpuPeek {
    #[pin]
    _files: kapi::hotplug::HotplugRegistration<Cpus>,
    #[pin]
    _device: kapi::misc::Registration<device::DeviceFile>,
    #[pin]
    _nodes: kapi::hotplug::HotplugRegistration<kapi::cpu_nodes::CpuNodes<device::NodeFile>>,
    _engine: Drained,
}

/// Who is told about CPUs.
struct Cpus {
    directories: Arc<cache::Directories>,
    samplers: Arc<sampler::Samplers>,
}

impl kapi::hotplug::Hotplug for Cpus {
    fn online(&self, cpu: u32) -> Result {
        self.directories.online(cpu)?;
        self.samplers.online(cpu);
        Ok(())
    }

    fn offline(&self, cpu: u32) {
        self.samplers.offline(cpu);
        self.directories.offline(cpu);
    }
}

/// The module's own reference to the engine.
struct Drained(Arc<engine::Engine>);

impl Drop for Drained {
    fn drop(&mut self) {
        // The device is gone, so that nothing is started any more.
        self.0.drain();
    }
}

impl kernel::InPlaceModule for CpuPeek {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(|| {
            let settings = engine::Settings {
                read_timeout_ms: parameter(module_parameters::read_timeout_ms.value()),
                spin_min_us: parameter(module_parameters::spin_min_us.value()),
                spin_max_us: parameter(module_parameters::spin_max_us.value()),
            };
            let out_of_range = |error: &Error| {
                if *error == EINVAL {
                    pr_err!("a parameter is out of range, see modinfo\n");
                }
            };
            let engine = engine::Engine::new(settings).inspect_err(out_of_range)?;
            let cache = cache::Cache::new(engine.clone())?;
            let probe_isolated = parameter(module_parameters::probe_isolated.value()) != 0;
            let directories = cache::Directories::new(cache.clone(), probe_isolated)?;
            let permille = parameter(module_parameters::unprivileged_permille.value());
            let samplers = sampler::Samplers::new()?;
            let cpus = Cpus {
                directories: directories.clone(),
                samplers: samplers.clone(),
            };
            let cpus = Arc::new(cpus, GFP_KERNEL)?;
            let shared = device::Shared {
                samplers,
                engine: engine.clone(),
                cache,
                policy: policy::Policy::new(permille).inspect_err(out_of_range)?,
                cpu_words: device::CpuWords::new(
                    parameter(module_parameters::cpu_word.value()) != 0,
                )?,
            };
            let nodes = device::NodeShared {
                engine: engine.clone(),
                policy: shared.policy.clone(),
            };
            let nodes = Arc::pin_init(kapi::cpu_nodes::CpuNodes::new(nodes), GFP_KERNEL)?;
            // Should this fail, the module goes, whoever has opened something. So nothing can be opened
            // before all has been done that can fail; and what has been started ends before the engine.
            Ok(try_pin_init!(Self {
                _engine: Drained(engine),
                _files <- kapi::hotplug::HotplugRegistration::new(cpus),
                _: {
                    directories.loaded();
                    nodes.make_all()?;
                },
                _nodes <- kapi::hotplug::HotplugRegistration::new(nodes.clone()),
                _device <- kapi::misc::Registration::new(shared),
                _: {
                    if nodes.admit().is_err() {
                        pr_warn!("no memory: the files in /dev/cpupeek-cpu cannot be opened\n");
                    }
                },
            }? Error))
        })
    }
}
