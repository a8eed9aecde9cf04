//! [`serve`]: the thread that a VMM talks to. It sets memory, rings and features of the queue pairs.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_ring::poll;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::RecvFlags;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    FrontendReq, VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use virtio_queue::QueueT;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::{Features, Pair, VhostUser, Vring};
use crate::listener::Listener;

/// How late the thread sees a request to end.
const TICK: Duration = Duration::from_millis(100);

/// How long a VMM may stop within a message.
const MAX_SILENCE: Duration = Duration::from_secs(2);

/// Serves one VMM after the other.
pub(crate) fn serve(listener: &Listener, device: &VhostUser, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Relaxed) {
        if !is_readable(listener.as_fd())? {
            continue;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => {
                // It may have gone again, or there are no descriptors for it now.
                tracing::warn!("cannot accept the virtual machine at {}: {error}", device.name);
                std::thread::sleep(TICK);
                continue;
            }
        };
        tracing::info!("a virtual machine has connected to {}", device.name);
        match handle_requests(stream, device, stop) {
            Ok(()) | Err(Error::Disconnected | Error::SocketBroken(_)) => {
                tracing::info!("the virtual machine at {} has gone", device.name);
            }
            Err(error) => {
                tracing::warn!(
                    "the virtual machine at {} is disconnected, because it asks for what the uplink does not have \
                     or does not keep to vhost-user: {error}",
                    device.name
                );
            }
        }
        Frontend::new(device).reset();
    }
    Ok(())
}

fn is_readable(descriptor: impl AsFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut fds, TICK)?;
    Ok(!fds[0].revents().is_empty())
}

fn handle_requests(stream: UnixStream, device: &VhostUser, stop: &AtomicBool) -> Result<()> {
    let set_up = || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(MAX_SILENCE))?;
        stream.set_write_timeout(Some(MAX_SILENCE))?;
        stream.try_clone()
    };
    let readable = set_up().map_err(Error::SocketError)?;
    let frontend = Arc::new(Mutex::new(Frontend::new(device)));
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&frontend));
    while !stop.load(Relaxed) {
        if !is_readable(&readable).map_err(Error::SocketError)? {
            continue;
        }
        let enable = peek_enable(&readable);
        match (handler.handle_request(), enable) {
            (Err(Error::InactiveFeature(_)), Some((index, enable))) => {
                let mut frontend = frontend.lock().unwrap_or_else(PoisonError::into_inner);
                frontend.set_vring_enable(index, enable)?;
            }
            (handled, _) => handled?,
        }
    }
    Ok(())
}

/// The ring and its state, if the next message enables or disables one. QEMU sends that before the features, as the
/// protocol allows, and [`BackendReqHandler`] does not.
fn peek_enable(stream: &UnixStream) -> Option<(u32, bool)> {
    let mut message = [0; 20];
    let (_, len) = rustix::net::recv(stream, &mut message, RecvFlags::PEEK).ok()?;
    // Request, flags, size; index and state.
    let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().unwrap_or_default());
    let is_enable = len == message.len() && word(0) == FrontendReq::SET_VRING_ENABLE as u32;
    (is_enable && word(8) == 8).then(|| (word(12), word(16) == 1))
}

/// What a VMM has said.
struct Frontend<'d> {
    device: &'d VhostUser,
    features: Features,
    /// Where the regions are for the VMM: its address, bytes, and the guest's address.
    mappings: Vec<(u64, u64, u64)>,
}

impl<'d> Frontend<'d> {
    fn new(device: &'d VhostUser) -> Self {
        let (features, mappings) = Default::default();
        Self { device, features, mappings }
    }

    /// Forgets what the VMM has said.
    fn reset(&mut self) {
        for (pair, epoll) in self.device.pairs.iter().zip(&self.device.epolls) {
            let mut pair = pair.lock().unwrap_or_else(PoisonError::into_inner);
            for vring in [&pair.rx, &pair.tx] {
                if let Some(kick) = &vring.kick {
                    let _ = epoll::delete(epoll, kick);
                }
            }
            *pair = Pair::default();
        }
    }

    /// Does something with a pair and a ring of it. Rings to the guest have even numbers.
    fn with_ring<T>(
        &self,
        index: u32,
        work: impl FnOnce(&mut Vring, &GuestMemoryMmap, usize) -> Result<T>,
    ) -> Result<T> {
        let number = index as usize / 2;
        if number >= self.device.pairs.len() {
            tracing::warn!(
                "the virtual machine at {} has more queue pairs than the uplink ({}): give both the same number",
                self.device.name,
                self.device.pairs.len()
            );
            return Err(Error::InvalidParam);
        }
        let mut pair = self.device.lock(number);
        let Pair { memory, rx, tx, .. } = &mut *pair;
        work(if index.is_multiple_of(2) { rx } else { tx }, memory, number)
    }

    /// Where the guest has what the VMM has at `address`.
    fn guest_address(&self, address: u64) -> Result<u64> {
        let found = self.mappings.iter().find_map(|(start, bytes, guest)| {
            let offset = address.checked_sub(*start).filter(|offset| offset < bytes)?;
            guest.checked_add(offset)
        });
        found.ok_or(Error::InvalidParam)
    }

    /// Gives all pairs the memory. Rings that are no longer inside it stop.
    fn use_memory(&self, memory: &GuestMemoryMmap) {
        for number in 0..self.device.pairs.len() {
            let mut pair = self.device.lock(number);
            pair.memory = memory.clone();
            let Pair { memory, rx, tx, .. } = &mut *pair;
            for vring in [rx, tx] {
                if vring.ring.queue.ready() && !vring.ring.is_valid(memory) {
                    vring.ring.queue.set_ready(false);
                }
            }
        }
    }
}

fn handler_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

/// Maps a region, if its file has all of it: what lies beyond the end of a file must not be touched.
fn map(region: &VhostUserMemoryRegion, file: File) -> Result<GuestRegionMmap> {
    let bytes = file.metadata().map_err(Error::ReqHandlerError)?.len();
    let end = region.mmap_offset.checked_add(region.memory_size);
    if end.is_none_or(|end| end > bytes) {
        return Err(Error::ReqHandlerError(io::Error::other(format!(
            "a file of {bytes} bytes is shorter than the memory region in it"
        ))));
    }
    let mapped = region.mmap_region(file)?;
    GuestRegionMmap::new(mapped, GuestAddress(region.guest_phys_addr)).ok_or(Error::InvalidParam)
}

const NOT_OFFERED: Error = Error::InvalidOperation("a feature that was not offered");

impl VhostUserBackendReqHandlerMut for Frontend<'_> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        for index in 0..2 * self.device.pairs.len() as u32 {
            self.with_ring(index, |vring, _, _| {
                vring.ring.queue.set_ready(false);
                vring.enabled = false;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.device.offered.0)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.device.offered.0 != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = Features(features);
        // Without this feature, there is no message that enables a ring.
        let enable = features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0;
        for number in 0..self.device.pairs.len() {
            let mut pair = self.device.lock(number);
            pair.features = self.features;
            pair.rx.enabled |= enable;
            pair.tx.enabled |= enable;
        }
        tracing::debug!("the guest at {}: {}", self.device.name, self.features);
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mut memory = GuestMemoryMmap::new();
        for (region, file) in regions.iter().zip(files) {
            memory = memory.insert_region(Arc::new(map(region, file)?)).map_err(handler_error)?;
        }
        self.mappings = regions
            .iter()
            .map(|region| (region.user_addr, region.memory_size, region.guest_phys_addr))
            .collect();
        self.use_memory(&memory);
        Ok(None)
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        Err(NOT_OFFERED)
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(NOT_OFFERED)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = num.try_into().map_err(|_| Error::InvalidParam)?;
        self.with_ring(index, |vring, _, _| {
            vring.ring.queue.try_set_size(size).map_err(handler_error)
        })
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let descriptors = self.guest_address(descriptors)?;
        let (used, available) = (self.guest_address(used)?, self.guest_address(available)?);
        self.with_ring(index, |vring, memory, _| {
            let ring = &mut vring.ring;
            let size = ring.queue.size();
            ring.set(size, descriptors, used, available).map_err(handler_error)?;
            if ring.queue.ready() && !ring.is_valid(memory) {
                ring.queue.set_ready(false);
                return Err(Error::InvalidParam);
            }
            Ok(())
        })
    }

    /// [`super::ring::Ring::start`] reads it from the ring.
    fn set_vring_base(&mut self, index: u32, _base: u32) -> Result<()> {
        self.with_ring(index, |_, _, _| Ok(()))
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.with_ring(index, |vring, memory, number| {
            let _ = vring.notify(memory);
            vring.ring.queue.set_ready(false);
            if let Some(kick) = vring.kick.take() {
                let _ = epoll::delete(&self.device.epolls[number], kick);
            }
            vring.call = None;
            Ok(vring.ring.queue.next_avail())
        })?;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let event_idx = self.features.has_event_idx();
        self.with_ring(index.into(), |vring, memory, number| {
            let epoll = &self.device.epolls[number];
            if let Some(old) = vring.kick.take() {
                let _ = epoll::delete(epoll, old);
            }
            if let Some(kick) = file {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(epoll, &kick, epoll::EventData::new_u64(index.into()), flags)
                    .map_err(|errno| Error::ReqHandlerError(errno.into()))?;
                vring.kick = Some(kick.into());
            }
            if vring.ring.queue.ready() {
                Ok(())
            } else {
                vring.ring.start(memory, event_idx).map_err(handler_error)
            }
        })
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        if let Some(call) = &file {
            // A worker never waits for the VMM.
            let flags = fcntl_getfl(call).map_err(|errno| Error::ReqHandlerError(errno.into()))?;
            fcntl_setfl(call, flags | OFlags::NONBLOCK)
                .map_err(|errno| Error::ReqHandlerError(errno.into()))?;
        }
        self.with_ring(index.into(), |vring, _, _| {
            vring.call = file.map(Into::into);
            Ok(())
        })
    }

    /// Nothing is told there.
    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.with_ring(index.into(), |_, _, _| Ok(()))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.with_ring(index, |vring, _, _| {
            vring.enabled = enable;
            Ok(())
        })
    }

    /// Not `CONFIGURE_MEM_SLOTS`: QEMU 7.2 adds each region once for every queue pair.
    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        type Protocol = VhostUserProtocolFeatures;
        Ok(Protocol::MQ | Protocol::REPLY_ACK | Protocol::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    /// Rings, as Cloud Hypervisor counts them. QEMU takes it for pairs.
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(2 * self.device.pairs.len() as u64)
    }

    fn get_config(
        &mut self,
        _offset: u32,
        _size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        Err(NOT_OFFERED)
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _bytes: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn get_inflight_fd(
        &mut self,
        _inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        Err(NOT_OFFERED)
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}
