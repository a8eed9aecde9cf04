//! Which backend a receiver takes, and why not a better one.

use std::os::fd::AsFd;

use crate::backend::Backend;
use crate::caller_socket::interface_of;
use crate::options::{Options, Reuseport};
use crate::probe::probe;
use crate::{Error, Result, caller_socket, socket, xdp};

/// The requested backend, if it is available, otherwise the best available one. With the reasons why not a
/// better one.
pub(super) fn select(options: &Options) -> Result<(Backend, Vec<String>)> {
    if let Some(backend) = options.backend {
        let ip = options.bind.ip();
        let available = match backend {
            Backend::Xdp => probe_xdp(options),
            _ => probe(backend, None),
        };
        return match available {
            Err(_)
                if backend == Backend::Xdp
                    && interface_of(options).is_none()
                    && !ip.is_unspecified()
                    && !ip.is_multicast() =>
            {
                Err(Error::AddressNotAvailable(options.bind))
            }
            Err(reason) => Err(Error::BackendUnavailable { backend, reason }),
            Ok(()) => Ok((backend, Vec::new())),
        };
    }
    let mut reasons = Vec::new();
    let backend = match options.take_over.then(|| native_xdp(options)) {
        Some(Ok(())) => Backend::Xdp,
        Some(Err(reason)) => {
            reasons.push(format!("not xdp: {reason}"));
            socket_backend(options, &mut reasons)
        }
        None => socket_backend(options, &mut reasons),
    };
    Ok((backend, reasons))
}

/// The best backend of the stock socket.
pub(super) fn socket_backend(options: &Options, reasons: &mut Vec<String>) -> Backend {
    match probe_gro(options) {
        Ok(()) => Backend::Gro,
        Err(reason) => {
            reasons.push(format!("not gro: {reason}"));
            Backend::Recvmmsg
        }
    }
}

/// Whether `gro` is the best of them: a filter of the socket would see joined datagrams.
pub(super) fn probe_gro(options: &Options) -> std::result::Result<(), String> {
    match &options.socket {
        Some(socket) if socket::has_filter(socket.as_fd()) => {
            Err("the socket has a filter, which is to see each datagram".to_owned())
        }
        _ => probe(Backend::Gro, None),
    }
}

/// Refuses several readers, of which `xdp` has one.
fn one_reader(options: &Options) -> std::result::Result<(), String> {
    if options.reuseport != Reuseport::Exclusive {
        Err("the port is to be shared, and xdp would take the messages of all".to_owned())
    } else if options.multiple_readers {
        Err("its rings have one reader, and there are to be several".to_owned())
    } else {
        Ok(())
    }
}

/// Whether `xdp` can receive with these options; the error is the reason why not.
fn probe_xdp(options: &Options) -> std::result::Result<(), String> {
    one_reader(options)?;
    let refusal =
        options.socket.as_ref().and_then(|socket| caller_socket::xdp_refusal(socket.as_fd()));
    refusal.map_or(Ok(()), Err)?;
    probe(Backend::Xdp, interface_of(options).as_deref())
}

/// The same for a selection: `xdp` is the best backend only where the driver runs the program.
pub(super) fn native_xdp(options: &Options) -> std::result::Result<(), String> {
    probe_xdp(options)?;
    let interface = interface_of(options).ok_or(xdp::NO_INTERFACE)?;
    match xdp::is_native(&interface) {
        true => Ok(()),
        false => Err(format!("the driver of {interface} has no native XDP")),
    }
}
