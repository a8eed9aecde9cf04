//! Loads each program of BPF objects alone, and prints a line for each: the object, the program, and `loaded` or the
//! reason of the refusal. `scripts/test-compilers` compares what different compilers made of the same source.
//!
//! ```sh
//! cargo run --package linerate-bpf --example load_each -- OBJECT...
//! ```

use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{MapHandle, MapType, ObjectBuilder, OpenObject};

fn main() {
    linerate_bpf::log_to_tracing();
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let object = file.split('.').next().unwrap_or_default().to_owned();
        for name in names(&open(path)) {
            match load(path, &name) {
                Ok(()) => println!("{object} {name} loaded"),
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
fn load(path: &Path, name: &str) -> Result<(), String> {
    let mut object = open(path);
    for mut program in object.progs_mut() {
        let is_chosen = program.name() == name;
        program.set_autoload(is_chosen);
        // A function that can always be traced, where the product chooses one at run time.
        if is_chosen && matches!(program.section().to_str(), Some("fentry" | "fexit")) {
            program
                .set_attach_target(0, Some("dev_set_mtu".to_owned()))
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
        let least = if map.map_type() == MapType::RingBuf { 4096 } else { 1 };
        if map.max_entries() < least {
            map.set_max_entries(least).map_err(|error| format!("{error:#}"))?;
        }
    }
    match object.load() {
        Ok(_) => Ok(()),
        Err(error) => Err(match linerate_bpf::verifier::refusal("load", &error) {
            Some(refusal) => refusal.to_string(),
            None => format!("{error:#}"),
        }),
    }
}
