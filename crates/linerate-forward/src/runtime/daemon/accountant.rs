//! [`Accountant`]: reads the largest connections for the metrics, in a thread of its own: a pass over a large table takes
//! longer than a heartbeat may.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::config::{ACCOUNTING_INTERVAL, Config};
use crate::table::Table;
use crate::table::accounting::{Connection, largest};
use crate::table::clock::Clock;
use crate::{Error, Result};

/// The thread ends soon after it is dropped.
#[derive(Debug, Default)]
pub(super) struct Accountant {
    largest: Arc<Mutex<Vec<Connection>>>,
    _stop: Option<Sender<()>>,
}

impl Accountant {
    /// Starts the thread if the configuration wants connections in the metrics.
    pub(super) fn start(config: &Config, table: &Arc<Table>, clock: Clock) -> Result<Self> {
        let limit = config.metrics_connections;
        if limit == 0 {
            return Ok(Self::default());
        }
        let (stop, stopped) = mpsc::channel();
        let accountant = Self { largest: Arc::default(), _stop: Some(stop) };
        let (table, found) = (Arc::clone(table), Arc::clone(&accountant.largest));
        let run = move || loop {
            let connections = largest(&table, &clock, limit);
            *found.lock().unwrap_or_else(PoisonError::into_inner) = connections;
            if stopped.recv_timeout(ACCOUNTING_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let thread = thread::Builder::new().name("forward-account".into()).spawn(run);
        thread.map_err(|source| Error::system("start the thread that accounts", source))?;
        Ok(accountant)
    }

    /// The largest connections when they were read last.
    pub(super) fn largest(&self) -> Vec<Connection> {
        self.largest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
