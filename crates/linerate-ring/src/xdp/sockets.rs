//! [`Sockets`]: the receive queues of one interface behind one reader.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::Instruction;
use linerate_bpf::steer::{self, TimestampSource};
use linerate_bpf::xdp::{AttachMode, require_free};
use linerate_net::text::plural;
use linerate_net::{Interface, link};
use rustix::event::{PollFd, PollFlags};

use super::batch::Order;
use super::socket::FrameMarks;
use super::statistics::Counters;
use super::{Batch, Mode, Socket, Statistics, TxSocket, Umem};
use crate::options::Options;
use crate::wait::WaitStrategy;
use crate::{Error, Region, Result, Ring, StatisticsReader, sys};

/// Bytes of the default buffer: 65,536 chunks, which hold 65 ms at a million frames a second.
///
/// Depth has a price. The kernel takes chunks in the order in which they came back, so every one of
/// them is touched before the first is touched again, and a buffer larger than the cache is always
/// cold. On a veth of a virtual machine with 1 MiB of second-level cache, 64-byte frames came at 3.5
/// million a second with this buffer, and at 4.4 million with one of 16 MiB, which is also what the
/// bare loop of that depth does. Who can promise not to stall takes the smaller one.
pub const DEFAULT_BUFFER: usize = 128 << 20;
/// Default size of a chunk in bytes.
pub const DEFAULT_CHUNK_SIZE: u32 = 2048;

/// How long a frame takes from its stamp to the ring of its socket: the kernel moves the frames of one poll of the
/// driver together.
const MAX_FLUSH_TIME_NS: u64 = 1_000_000;

/// All receive queues of an interface, or some, each with its rings over one region, read by one reader. Several
/// readers share the region and the program ([`Sockets::open_group`]).
///
/// While it lives the frames that its filter accepts do not reach the stack.
#[derive(Debug)]
pub struct Sockets {
    // Dropped first: with the last reader the program is detached before the sockets close, so that no frame is
    // lost to a closed one.
    steering: Arc<Mutex<Steering>>,
    pub(crate) counters: Counters,
    attach_mode: AttachMode,
    timestamps: TimestampSource,
    /// Why the steering program got nothing better.
    why: Vec<String>,
    sockets: Vec<Socket>,
    /// The frames' memory.
    pub umem: Arc<Umem>,
    /// Chunks of all sockets.
    frame_capacity: u32,
    interface: Interface,
    turn: usize,
    /// When several queues were put in order last, TAI.
    looked: u64,
    order: Order,
    wait_strategy: WaitStrategy,
    was_up: bool,
    stopped: bool,
    polls: Vec<PollFd<'static>>,
}

/// The program that several readers share.
#[derive(Debug)]
struct Steering {
    program: steer::Program,
    stopped: bool,
}

impl Sockets {
    /// All receive queues of `interface`: allocates, opens a socket a queue, and attaches the steering program. Frames
    /// refused by the subprogram `filter` are not captured. [`Options::delivery`], `action`, `snaplen`, `promiscuous` and
    /// `rings` are not the sockets'.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`], [`Error::System`]; [`Error::Bpf`] when another XDP
    /// program is on the interface or the kernel refuses the filter; [`Error::Invalid`] for sizes that
    /// make no sense; those of [`Region::new`].
    pub fn open(
        interface: &str,
        options: &Options,
        filter: Option<&[Instruction]>,
    ) -> Result<Self> {
        let one = Options { readers: 1, ..options.clone() };
        Self::open_group(interface, &one, filter).map(|mut all| all.remove(0))
    }

    /// As [`Sockets::open`] for several readers ([`Options::readers`]). Each has consecutive queues of its own.
    ///
    /// # Errors
    /// As [`Sockets::open`].
    pub fn open_group(
        interface: &str,
        options: &Options,
        filter: Option<&[Instruction]>,
    ) -> Result<Vec<Self>> {
        let interface = Interface::open(interface)?;
        require_free(interface.name())?;
        let &Options { transmit, pages, timestamps, mode, untagged, chunk_size, readers, .. } =
            options;
        let steer = steer::Options { filter, by_address: false, timestamps, mode, untagged };
        let mut steer = steer::Program::load(interface.name(), &steer)?;
        let queues = match &options.queues {
            Some(queues) if queues.is_empty() => {
                return Err(Error::Invalid("no receive queue was chosen".into()));
            }
            Some(queues) => queues.clone(),
            None => (0..interface.rx_queues()?).collect(),
        };
        let buffer = options.buffer.unwrap_or(DEFAULT_BUFFER);
        let bytes = buffer + transmit as usize * chunk_size as usize;
        let region = Region::new(bytes, pages, link::numa_node(interface.name()))?;
        let umem = Umem::new(region, chunk_size)?;
        let depth = (buffer / chunk_size as usize) as u32 / queues.len() as u32;
        if depth < 64 {
            return Err(Error::Invalid(format!(
                "a buffer of {} bytes for {} has {depth} chunks of {} bytes for each; 64 is the least",
                buffer,
                plural(queues.len() as u64, "queue"),
                chunk_size
            )));
        }
        let mut sockets = Vec::new();
        for &queue in &queues {
            let transmit = if sockets.is_empty() { transmit } else { 0 };
            let options = Options { transmit, ..options.clone() };
            let mut socket = Socket::open(interface.name(), queue, &umem, depth, options)?;
            let stamps = steer.timestamps().0;
            socket.marking = FrameMarks {
                metadata: matches!(stamps, TimestampSource::Software | TimestampSource::Hardware),
                stamp: stamps == TimestampSource::Reader,
                tai_offset_ns: sys::tai_offset_ns(),
            };
            steer.add_socket(queue, socket.as_fd())?;
            sockets.push(socket);
        }
        let was_up = interface.is_up()?;
        let attach_mode = steer.attach()?;
        let (timestamps, why_timestamps) = steer.timestamps();
        let why = steer.generic_reason().into_iter().chain(why_timestamps);
        let why: Vec<_> = why.map(str::to_owned).collect();
        // The first reader counts the frames of the queues that have no socket.
        let mut others: Vec<_> =
            (0..=steer.queues()).filter(|queue| !queues.contains(queue)).collect();
        let steering = Arc::new(Mutex::new(Steering { program: steer, stopped: false }));
        let readers = readers.clamp(1, queues.len());
        let mut rest = sockets.into_iter();
        let build = |reader: usize| {
            let count = (reader + 1) * queues.len() / readers - reader * queues.len() / readers;
            let sockets: Vec<_> = rest.by_ref().take(count).collect();
            let counters = {
                let steering = steering.lock().unwrap_or_else(PoisonError::into_inner);
                Counters::new(&steering.program, &sockets, std::mem::take(&mut others))?
            };
            Ok(Sockets {
                steering: Arc::clone(&steering),
                counters,
                attach_mode,
                timestamps,
                why: why.clone(),
                polls: sockets.iter().map(poll_entry).collect(),
                frame_capacity: depth * sockets.len() as u32,
                sockets,
                umem: Arc::clone(&umem),
                interface: interface.clone(),
                turn: 0,
                looked: 0,
                order: Order::default(),
                wait_strategy: options.wait_strategy,
                was_up,
                stopped: false,
            })
        };
        (0..readers).map(build).collect()
    }

    /// The queue to read, and the stamp of the oldest frame that waits in another.
    #[inline]
    fn next_queue(&mut self) -> Option<(usize, u64)> {
        let count = self.sockets.len();
        if count > 1 && self.sockets[0].marking.metadata {
            return self.oldest();
        }
        let mut turn = self.turn;
        for _ in 0..count {
            turn = if turn + 1 == count { 0 } else { turn + 1 };
            if self.sockets[turn].ready() {
                return Some((turn, u64::MAX));
            }
        }
        None
    }

    fn oldest(&mut self) -> Option<(usize, u64)> {
        let (mut found, mut until) = (None::<(usize, u64)>, u64::MAX);
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let Some(stamp) = socket.next_stamp() else { continue };
            match found {
                Some((_, oldest)) if stamp >= oldest => until = until.min(stamp),
                _ => {
                    until = found.map_or(u64::MAX, |(_, oldest)| oldest);
                    found = Some((index, stamp));
                }
            }
        }
        let horizon = self.horizon();
        let (index, _) = found.filter(|(_, stamp)| *stamp <= horizon)?;
        Some((index, until.min(horizon)))
    }

    /// The stamp up to which all frames are in the rings.
    fn horizon(&mut self) -> u64 {
        // A card has a clock of its own.
        if self.stopped || self.timestamps != TimestampSource::Software {
            return u64::MAX;
        }
        let (before, now) = (self.looked, sys::tai_ns());
        self.looked = now;
        // Somebody may set the clock back: what was stamped before that is earlier, whatever its stamp says.
        if now < before { u64::MAX } else { now.saturating_sub(MAX_FLUSH_TIME_NS) }
    }

    /// Loads the program with another filter, for [`Sockets::replace_filter`].
    ///
    /// # Errors
    /// As [`steer::Program::load_filter`].
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        Ok(self.steering().program.load_filter(filter)?)
    }

    /// Replaces the filter, without a privilege; to no effect after [`Ring::stop`].
    ///
    /// # Errors
    /// As [`steer::Program::replace_filter`].
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> Result<()> {
        let mut steering = self.steering();
        if steering.stopped { Ok(()) } else { Ok(steering.program.replace_filter(loaded)?) }
    }

    /// Where the steering program runs.
    pub fn attach_mode(&self) -> AttachMode {
        self.attach_mode
    }

    /// What the sockets got (all of one interface get the same), with every reason why something
    /// better was not got, the steering program's included.
    pub fn mode(&self) -> Mode {
        let mut mode = self.sockets[0].mode().clone();
        mode.why.extend_from_slice(&self.why);
        mode
    }

    /// Who stamps in fact.
    pub fn timestamps(&self) -> TimestampSource {
        self.timestamps
    }

    /// The transmit half of the first socket, once, where it was built with one ([`Options::transmit`]).
    pub fn take_tx(&mut self) -> Option<TxSocket> {
        self.sockets.iter_mut().find_map(|socket| socket.tx.take())
    }

    /// The queues that it reads.
    pub fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        self.sockets.iter().map(Socket::queue)
    }

    /// Frames that the buffer holds, over all queues.
    pub fn frame_capacity(&self) -> u32 {
        self.frame_capacity
    }

    /// Frames that wait to be read, over all queues: the fill of the buffer.
    pub fn pending(&mut self) -> u32 {
        self.sockets
            .iter_mut()
            .filter_map(|socket| socket.receive.as_mut())
            .map(|r| r.refresh())
            .sum()
    }

    fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets are not told when an interface goes down, so it is asked when nothing comes.
    fn check_up(&mut self) -> Result<()> {
        let up = self.interface.is_up()?;
        let went_down = self.was_up && !up;
        self.was_up = up;
        if went_down { Err(Error::InterfaceDown(self.interface.name().to_owned())) } else { Ok(()) }
    }
}

impl Ring for Sockets {
    type Batch<'r> = Batch<'r>;
    type Statistics = Statistics;

    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        if self.stopped {
            return Ok(self.sockets.iter_mut().any(Socket::ready));
        }
        let strategy = self.wait_strategy;
        let sockets = &mut self.sockets;
        let Some(left) = strategy.wait_until(timeout, || sockets.iter_mut().any(Socket::ready))
        else {
            return Ok(true);
        };
        let woken = sys::poll(&mut self.polls, left).map_err(|error| {
            Error::system(format!("wait for frames of {}", self.interface.name()), error)
        })?;
        if woken {
            for (socket, poll) in self.sockets.iter().zip(&self.polls) {
                socket.check(poll.revents())?;
            }
        } else if let Err(error) = self.check_up() {
            if !self.sockets.iter_mut().any(Socket::ready) {
                return Err(error);
            }
            // What came before the trouble comes first; the next call finds the trouble again.
            self.was_up = true;
        }
        Ok(self.sockets.iter_mut().any(Socket::ready))
    }

    #[inline]
    fn ready(&mut self) -> bool {
        self.sockets.iter_mut().any(Socket::ready)
    }

    /// The frames of the queue whose next frame is the oldest, up to where another queue has an older one; where the
    /// kernel does not stamp, those of the next queue that has some. Frames of several queues wait until they are 1 ms
    /// old, so that none of another queue comes late.
    #[inline]
    fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.release();
        let (turn, until) = self.next_queue()?;
        self.turn = turn;
        // It changes when a time daemon tells the kernel of leap seconds, long after boot. Two
        // clock readings without a system call, once a batch, where stamps are made of it.
        let marking = &mut self.sockets[turn].marking;
        if marking.metadata {
            marking.tai_offset_ns = sys::tai_offset_ns();
        }
        let order = (self.sockets.len() > 1).then_some(&mut self.order);
        Some(Batch::new(&mut self.sockets[turn], until, order))
    }

    #[inline]
    fn release(&mut self) {
        self.sockets[self.turn].release();
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd).collect()
    }

    /// Also for the other readers. Frames that come from now on are refused, as by a filter. Takes no privilege.
    fn stop(&mut self) -> Result<()> {
        if !self.stopped {
            // The others wait for the one that stops.
            let mut steering = self.steering();
            if !steering.stopped {
                steering.program.reject_all()?;
                steering.stopped = true;
            }
            drop(steering);
            self.stopped = true;
        }
        Ok(())
    }

    /// Counts of the queues of this reader and of the steering program.
    fn statistics(&self) -> Result<Statistics> {
        let mut sum = self.counters.read()?;
        for socket in &self.sockets {
            sum.received += socket.received;
        }
        sum.disordered = self.order.disordered;
        Ok(sum)
    }

    fn statistics_reader(&self) -> Result<StatisticsReader<Statistics>> {
        let others = self.counters.others.clone();
        let counters = Counters::new(&self.steering().program, &self.sockets, others)?;
        Ok(StatisticsReader::new(move || counters.read()))
    }

    fn fill_level(&mut self) -> f32 {
        self.pending() as f32 / self.frame_capacity.max(1) as f32
    }
}

/// What to poll of a socket; made once, so that waiting allocates nothing.
fn poll_entry(socket: &Socket) -> PollFd<'static> {
    // SAFETY: the source keeps the entry beside the socket, whose descriptor stays open meanwhile.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_fd().as_raw_fd()) };
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}
