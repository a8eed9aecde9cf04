//! [`AttachMode`]: where in the kernel an XDP program runs.

/// Where in the kernel an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// In the driver, before a socket buffer is made.
    Native,
    /// In the stack, after it: works on every interface, at the cost of the socket buffer.
    Generic,
}

linerate_net::named!(AttachMode, "XDP mode": Native = "native", Generic = "generic");

impl AttachMode {
    /// The flag that asks the kernel for it (`XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE`).
    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
    }

    /// The word that `ip link set` takes.
    pub(crate) fn ip_link_word(self) -> &'static str {
        match self {
            Self::Native => "xdpdrv",
            Self::Generic => "xdpgeneric",
        }
    }
}
