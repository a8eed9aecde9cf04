//! This machine, as capture files name it.

use linerate_pcapfile::SectionHeader;

/// The section header of files that `application` (its name and version) writes on this machine.
pub fn section_header(application: &str) -> SectionHeader {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let hardware = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model.trim().to_owned());
    let name = rustix::system::uname();
    let os = format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy());
    SectionHeader { hardware, os: Some(os), application: Some(application.to_owned()) }
}
