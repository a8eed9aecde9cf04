//! [`Receiver::open`]: checks the options of a receiver, selects its backend and opens it.

mod calibrate;
mod select;

use crate::backend::Backend;
use crate::options::{MAX_BATCH_SIZE, MAX_MESSAGE_SIZE, Options};
use crate::receiver::Receiver;
use crate::socket::unmapped;
use crate::{Error, Result};
use calibrate::Calibration;

/// The largest power of two that a map's size in bytes, of 32 bits, can have.
const MAX_RING_SIZE: usize = 1 << 31;

impl Options {
    /// Whether consent is all that [`Backend::Xdp`] lacks to be selected. Probes the driver.
    pub fn awaits_consent(&self) -> bool {
        self.backend.is_none() && !self.take_over && select::native_xdp(self).is_ok()
    }
}

impl Receiver {
    /// Selects the backend, opens and binds the socket, joins the groups, and prepares all memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes out of range, [`Error::AddressNotAvailable`], [`Error::AddressInUse`],
    /// [`Error::NoInterface`], [`Error::Group`], [`Error::Privilege`]; [`Error::BackendUnavailable`] if the
    /// requested backend is unavailable.
    pub fn open(mut options: Options) -> Result<Self> {
        options.bind = unmapped(options.bind);
        let Options { batch, message_size, .. } = options;
        if !(1..=MAX_BATCH_SIZE).contains(&batch) {
            return Err(Error::Invalid(format!(
                "a batch of {batch} messages: it must be 1 to {MAX_BATCH_SIZE}"
            )));
        }
        if !(1..=MAX_MESSAGE_SIZE).contains(&message_size) {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes: a UDP datagram has 1 to {MAX_MESSAGE_SIZE}"
            )));
        }
        if options.ring_size > MAX_RING_SIZE {
            return Err(Error::Invalid(format!(
                "a ring of {} bytes: it must be at most {MAX_RING_SIZE}",
                options.ring_size
            )));
        }
        for group in &options.groups {
            Error::check_group(group, options.bind, options.versions())?;
        }
        let Calibration { best, mut reasons, runs } = match options.calibrate {
            Some(time) if options.backend.is_none() => calibrate::run(&options, time),
            _ => Calibration::default(),
        };
        let backend = match best {
            Some(backend) => backend,
            None => {
                let backend;
                (backend, reasons) = select::select(&options)?;
                if options.backend.is_none() && options.calibrate.is_some() {
                    reasons.push("no message arrived to calibrate by".to_owned());
                }
                backend
            }
        };
        let opened = match Self::open_backend(&options, backend) {
            Err(error) if options.backend.is_none() && backend == Backend::Xdp => {
                reasons.push(format!("not xdp: {error}"));
                let next = select::socket_backend(&options, &mut reasons);
                Self::open_backend(&options, next)
            }
            other => other,
        };
        let receiver = opened?;
        reasons
            .extend(receiver.xdp_mode().into_iter().flat_map(|(interface, _)| effects(interface)));
        Ok(receiver.selected(reasons, runs))
    }
}

/// What exists on this host that messages taken from `interface` bypass, and what its other traffic pays.
fn effects(interface: &str) -> Vec<String> {
    let Ok(interface) = linerate_net::Interface::open(interface) else { return Vec::new() };
    let found = linerate_bpf::bypassed(&interface);
    let bypassed =
        (!found.is_empty()).then(|| format!("messages bypass what is here: {}", found.join(", ")));
    // `veth_convert_skb_to_xdp_buff`.
    let slower = (interface.driver().as_deref() == Some("veth")).then(|| {
        format!(
            "other traffic through {} is slower: for an XDP program a veth copies super-packets",
            interface.name()
        )
    });
    bypassed.into_iter().chain(slower).collect()
}
