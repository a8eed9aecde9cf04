//! [`Symbols`]: the names of the kernel's functions, from `/proc/kallsyms`.

/// The functions of the kernel and its modules, by their addresses. Empty where this process may not know them
/// (`kptr_restrict` in proc_sys_kernel(5)).
#[derive(Debug)]
pub(super) struct Symbols {
    /// Addresses in order, with the place of each name in `names`.
    starts: Vec<(u64, u32)>,
    /// The names, each ended by a line feed.
    names: String,
}

impl Symbols {
    /// What the kernel says now.
    pub(super) fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Lines of an address, a type and a name, as nm(1) prints them.
    fn parse(text: &str) -> Self {
        let mut symbols = Self { starts: Vec::new(), names: String::new() };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            // Where the kernel hides its addresses, they are zeros.
            if let Ok(address @ 1..) = u64::from_str_radix(address, 16) {
                symbols.starts.push((address, symbols.names.len() as u32));
                symbols.names.push_str(name);
                symbols.names.push('\n');
            }
        }
        symbols.starts.sort_unstable();
        symbols
    }

    /// The function of this address and the distance from its start, as the kernel writes it; the address alone
    /// where the function is not known.
    pub(super) fn place(&self, address: u64) -> String {
        let behind = self.starts.partition_point(|(start, _)| *start <= address);
        match behind.checked_sub(1).map(|at| self.starts[at]) {
            Some((start, name)) => format!("{}+{:#x}", self.name(name), address - start),
            None => format!("{address:#x}"),
        }
    }

    #[cfg(test)]
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        self.starts.iter().find(|(_, at)| self.name(*at) == name).map(|(start, _)| *start)
    }

    fn name(&self, at: u32) -> &str {
        self.names[at as usize..].lines().next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let symbols = Symbols::parse(
            "ffffffff81000100 T second\nffffffff81000000 t first\nffffffff81000080 D data\n\
             ffffffff81000200 t third\t[module]\n",
        );
        assert_eq!(symbols.place(0xffff_ffff_8100_0090), "first+0x90");
        assert_eq!(symbols.place(0xffff_ffff_8100_0100), "second+0x0");
        assert_eq!(symbols.place(0xffff_ffff_8100_0210), "third+0x10");
        assert_eq!(symbols.place(0x10), "0x10");
        assert_eq!(Symbols::parse("0000000000000000 T hidden\n").place(0x10), "0x10");
    }
}
