//! Loads each program of BPF objects alone, and prints a line for each: the object, the program, and `loaded` or the
//! reason of the refusal. `scripts/test-compilers` compares what different compilers made of the same source. Programs
//! that load for one interface only are loaded for a veth.
//!
//! ```sh
//! cargo run --package linerate-bpf --example load_each -- OBJECT...
//! ```

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{MapHandle, MapType, Object, ObjectBuilder, OpenObject};
use linerate_testkit::{Namespace, Veth, VethOptions};

fn main() {
    linerate_bpf::log_to_tracing();
    let namespace = Namespace::create("load").expect("the programs take root");
    let veth = Veth::create(&namespace, "a", &namespace, "b", VethOptions::default());
    let index = veth.as_ref().map_or(0, |veth| veth.a.index());
    namespace.run(|| load_all(index)).expect("it can be entered");
}

fn load_all(interface: u32) {
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let object = file.split('.').next().unwrap_or_default().to_owned();
        for name in names(&open(path)) {
            let result = load(path, &name, None).or_else(|reason| {
                let is_bound = interface != 0 && reason.contains("device-bound");
                if is_bound { load(path, &name, Some(interface)) } else { Err(reason) }
            });
            match result {
                Ok(_) => println!("{object} {name} loaded"),
                Err(reason) => println!("{object} {name} refused: {reason}"),
            }
        }
    }
}

fn open(path: &Path) -> OpenObject {
    ObjectBuilder::default()
        .open_file(path)
        .unwrap_or_else(|error| panic!("{}: {error:#}", path.display()))
}

fn names(object: &OpenObject) -> Vec<String> {
    object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect()
}

/// Loads the program of this name and no other, with maps of the smallest size.
fn load(path: &Path, name: &str, interface: Option<u32>) -> Result<Object, String> {
    let mut object = open(path);
    let mut traced = None;
    for mut program in object.progs_mut() {
        let is_chosen = program.name() == name;
        program.set_autoload(is_chosen);
        if let Some(interface) = interface {
            program.set_ifindex(interface);
            program.set_flags(libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY);
        }
        // An XDP program, where the product chooses one at run time.
        if is_chosen && matches!(program.section().to_str(), Some("fentry" | "fexit")) {
            let steer = load(&path.with_file_name("steer.bpf.o"), "steer", None)?;
            let steer = traced.insert(steer).progs().find(|program| program.name() == "steer");
            let fd = steer.map_or(0, |program| program.as_fd().as_raw_fd());
            program
                .set_attach_target(fd, Some("steer".to_owned()))
                .map_err(|error| format!("{error:#}"))?;
        }
    }
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let ring = MapHandle::create(MapType::RingBuf, Some("ring"), 0, 0, 4096, &options)
        .map_err(|error| format!("{error:#}"))?;
    for mut map in object.maps_mut() {
        if map.map_type() == MapType::ArrayOfMaps {
            map.set_inner_map_fd(ring.as_fd()).map_err(|error| format!("{error:#}"))?;
        }
        // The product knows the size when it runs.
        if map.name() == "heads" {
            map.set_value_size(4096).map_err(|error| format!("{error:#}"))?;
        }
        let least = match map.map_type() {
            MapType::RingBuf => 4096,
            MapType::SkStorage => 0,
            _ => 1,
        };
        if map.max_entries() < least {
            map.set_max_entries(least).map_err(|error| format!("{error:#}"))?;
        }
    }
    match object.load() {
        Ok(object) => Ok(object),
        Err(error) => Err(match linerate_bpf::verifier::refusal("load", &error) {
            Some(refusal) => refusal.to_string(),
            None => format!("{error:#}"),
        }),
    }
}
