//! [`Store`]: where the sessions of an instance are, the table or the hash maps of a design, behind one face for all
//! who list, count and end them; and [`Cleaner`], which ages them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Result;
use crate::ageing::{Aged, Ageing, Limits};
use crate::clock::Clock;
use crate::config::Statistics;
use crate::hashed::{Hashed, HashedAgeing};
use crate::program::Maps;
use crate::session::Record;
use crate::table::Table;

/// Where sessions are.
#[derive(Clone, Debug)]
pub enum Store {
    /// The designs `slot` and `none`.
    Table(Arc<Table>),
    /// The others.
    Hashed(Arc<Hashed>),
}

impl Store {
    /// That of the programs with these maps, which count by `statistics`; `program` gives the one of a name.
    ///
    /// # Errors
    /// As [`Table::open`] and [`Hashed::open`], and what `program` returns.
    pub fn open(
        maps: &Maps,
        statistics: Statistics,
        program: impl FnOnce(&str) -> Result<OwnedFd>,
    ) -> Result<Self> {
        Ok(match statistics {
            Statistics::None | Statistics::Slot => Self::Table(Arc::new(Table::open(maps)?)),
            _ => Self::Hashed(Arc::new(Hashed::open(maps, statistics, program("end")?)?)),
        })
    }

    /// Sessions that there is room for.
    pub fn room(&self) -> u64 {
        match self {
            Self::Table(table) => (table.places() / 2) as u64,
            Self::Hashed(hashed) => hashed.room(),
        }
    }

    /// Bytes of kernel memory that it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Table(table) => table.bytes() as u64,
            Self::Hashed(hashed) => hashed.bytes(),
        }
    }

    /// Sessions that have not ended, by looking at all.
    ///
    /// # Errors
    /// [`crate::Error::Ring`], of hash maps.
    pub fn count(&self) -> Result<u64> {
        match self {
            Self::Table(table) => Ok(table.count()),
            Self::Hashed(hashed) => {
                let mut count = 0;
                hashed.for_each(|record| count += u64::from(!record.is_ended()))?;
                Ok(count)
            }
        }
    }

    /// Hands over every session once, ended or not.
    ///
    /// # Errors
    /// As [`Store::count`].
    pub fn for_each(&self, take: impl FnMut(Record)) -> Result<()> {
        match self {
            Self::Table(table) => {
                table.records().for_each(take);
                Ok(())
            }
            Self::Hashed(hashed) => hashed.for_each(take),
        }
    }

    /// Ends the sessions that `accepts` says: the kernel has their next packets. How many there were.
    ///
    /// # Errors
    /// As [`Store::count`].
    pub fn end(&self, accepts: impl FnMut(&Record) -> bool) -> Result<u64> {
        match self {
            Self::Table(table) => Ok(table.end(accepts)),
            Self::Hashed(hashed) => hashed.end(accepts),
        }
    }
}

/// Ages the sessions of a store.
#[derive(Debug)]
pub enum Cleaner {
    /// Those of a table.
    Table(Ageing),
    /// Those in hash maps.
    Hashed(HashedAgeing),
}

impl Cleaner {
    /// The one for `store`, which the programs with `maps` forward by.
    ///
    /// # Errors
    /// [`crate::Error::Ring`].
    pub fn new(store: &Store, maps: &Maps, limits: Limits, clock: Clock) -> Result<Self> {
        Ok(match store {
            Store::Table(table) => {
                Self::Table(Ageing::new(Arc::clone(table), maps, limits, clock)?)
            }
            Store::Hashed(hashed) => {
                Self::Hashed(HashedAgeing::new(Arc::clone(hashed), maps, limits, clock)?)
            }
        })
    }

    /// What was done so far.
    pub fn aged(&self) -> Aged {
        match self {
            Self::Table(ageing) => ageing.aged(),
            Self::Hashed(ageing) => ageing.aged(),
        }
    }

    /// Other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        match self {
            Self::Table(ageing) => ageing.set_limits(limits),
            Self::Hashed(ageing) => ageing.set_limits(limits),
        }
    }

    /// Does what has come due; to be called every [`crate::ageing::TICK`].
    ///
    /// # Errors
    /// As [`Ageing::tick`] and [`HashedAgeing::tick`].
    pub fn tick(&mut self) -> Result<()> {
        match self {
            Self::Table(ageing) => ageing.tick(),
            Self::Hashed(ageing) => ageing.tick(),
        }
    }
}
