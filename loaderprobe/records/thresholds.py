"""Thresholds: figures by which the judging decides a word or a figure, each with its meaning.

After "From:" stands the measurement, paper or program that a value comes from. A value without it was chosen.
`loaderprobe explain thresholds` prints this module as tables, one for each comment.
"""

# What is worth a word
MATTERS = 0.05
"""A smaller gain, loss or change does not matter, unless asked: CPU speed alone drifts by more."""
WORTH = 1 + MATTERS
"""A speed-up that is smaller is not worth a word. A ladder of concurrency rises while its last steps gain more."""
ALIKE = 0.02
"""Rates that differ by no more are alike: then fewer workers, the smaller batch or the shorter benchmark will do."""
AT_LIMIT = 0.95
"""A rate that reaches this share of a limit, or of the best, is at the limit: as many readers are enough."""
SATURATED = 0.85
"""Devices that move this share of what they can, and cores this busy, are the limit. From: assumed of cores."""
NEGLIGIBLE_WAIT = 0.05
"""Workers that wait for less of their time do not wait: no speed-up worth a word, no lock, and files from memory."""
WAIT_MODERATE = 0.05
"""Share of the time that training waits for input, beside the verdict. From: XProf's input-pipeline analyzer."""
OTHER_READS = 0.05
"""Other processes' reads are worth a word from this share of the own reads on."""
OF_STEP = 0.02
"""What takes less of a step, such as a meeting of ranks or a copy, is not worth a word."""
SAME_MEMORY = 0.02
"""Memory of the same machine differs by this share: by what its kernel keeps."""

# Leads of one resource over another
CLEAR_LEAD = 1.15
"""Two speed-ups or limits closer than this, or than two standard errors, do not differ."""
OPEN_LEAD = 1.5
"""An estimate may be off by more than the noise: a firm word that rests on one needs this lead."""
LEAD_OF_ONE_ROUND = 2.0
"""The same lead of two single segments on a busy machine: CPU time differs by a factor of 2 at most."""
FAR_LEAD = 2.25
"""Other processes cannot make such a lead: one on one of two cores halves a rate. From: assumed for more cores."""
CERTAIN_LEAD = 5.0
"""Single segments so far apart keep their order, and one round is enough: rounds differ by a factor of 2 at most."""
FAR_BEYOND_NOISE = 1.25
"""A cause with a larger speed-up is far beyond noise: confidence in it may be high."""

# Rounds and their noise
ENOUGH_ROUNDS = 3
"""Fewer rounds, runs or segments have no useful spread. From: Student's factor of two is 12.7."""
DOUBTED_ROUNDS = 2
"""After so many rounds that do not fit the model, the rest train without each resource: a third shows nothing new."""
MOST_TIMES = 2
"""What is still ambiguous gets so many times the rounds, and after that stays what it is."""
MOST_PAIRS = 2
"""Rounds with and without further threads. A first one in which nothing gains is not repeated."""
WIDE = 0.1
"""Half the interval of a rate, as a share of it, from which on more rounds are measured, or the reader is warned."""
UNEVEN = 2.0
"""Rates of rounds that differ by this factor: another round is measured before other configurations get more. From: a
round at 37 images/s and one at 172, beside a neighbour."""
LEAST_PREDICTION_ERROR = 0.1
"""Training off its prediction by less is as predicted. From: the median drift of CPU speed within 15 s was 8 %."""
MOST_PREDICTION_ERROR = 0.25
"""One round may be off by so much; noise excuses no more. From: 26 % was the same drift at the 95th percentile."""
MOST_UNEXPLAINED = 1 / (1 - MOST_PREDICTION_ERROR)
"""Compute is certain only if it alone is no faster than this: freeing something else gains a third, compute 5 times."""
MOST_NOISE = 0.5
"""Rounds that differ by more than this from the middle one tell nothing of a whole and its parts."""
ROUNDS_VARY = 0.05
"""Standard deviation between rounds beyond that of their steps, known as well as from four rounds. From: measured on a
virtual machine of two cores (`scripts/bench intervals`), assumed of others."""
CLOCK_VARIES = 0.001
"""The same of an emulated device that never waits: that of its clock."""
DEVICE_VARIES = 0.01
"""The same of another device that never waits, whose clock may change. From: assumed."""
NEVER_WAITS = 0.995
"""A device with its own queue that trains at this share of its rate never waits."""
MEDIAN_OVER_MEAN = 1.16
"""The standard error of the median of three rounds over that of their mean; of many it is 1.25."""
ALPHA = 0.05
"""Chance that rows of a comparison with no change differ all the same."""
NORMAL = 1.96
"""Standard errors of a 95 % interval."""
OF_SLICES = 5
"""Degrees of freedom of an interval of one round or two: of six to eleven batch means, or of a rate."""
REPEAT = 0.03
"""Half the 95 % interval of the ratio of two runs of the same thing, minutes apart. From: `scripts/bench compare --only
drift`. Where other work ran beside them it was 18 %."""

# Workers and cores
RUN_DELAY_SHARE = 0.2
"""Workers that wait this share of their time for a core do not gain from more workers."""
KEPT_DELAY = 0.5
"""Workers that wait this share of their time for a core, while cores stay idle, may not use those. From: 0.68 of three
workers on one of two cores, 0.23 of two beside training on two."""
KEPT_CORES = 0.5
"""So many stay idle then. From: 0.98 and 0.40 in the same two."""
CORES_IN_USE_SHARE = 0.9
"""Cores of which this share is in use are all busy."""
HELPERS_AT_LEAST = 0.1
"""Of a worker's time: threads of its own that compute less do not hold it up."""
WAITING_STEP = 0.5
"""A step that uses no core for this share of its time waits for something. From: 0.80 where it sleeps 40 of 42 ms, 0.00
where it trains and saves its weights to a disk each time."""
SPINNING = 0.2
"""CPU seconds a second of threads beside a serial loader from which on it is tried on one thread. From: on 2 cores 0.94
to 0.99 where they spin, 0.52 to 0.62 where another process keeps one of the cores busy, 0.00 with one thread."""
LEAST_SAMPLES = 12
"""Fewer samples of a worker's waits say nothing about shares."""
LEAST_LOOKS = 30
"""Fewer looks at stacks say nothing. From: of 30, a share of 50 % is known to 18 points."""
LEAST_OWN = 0.02
"""Of the looks: a function that has less is no place to begin."""
UNBOUNDED = 1000.0
"""A loader without bound is counted as this much faster, so that no figure is infinite."""

# Cold, warm and kept
COLD_AT_LEAST = 0.8
"""Share of the bytes delivered that must have come from storage for a segment to count as cold: less is partly warm."""
CEILING_COLD_AT_LEAST = 0.9
"""The same share for a phase of the bandwidth probe: segments are compared with its rate. A segment of which a fifth
came from memory still shows what its storage costs. From: a tenth from memory raises the ceiling by up to 11 %, a
fifth by up to 25 %, and a segment within 15 % of it is near."""
WARM_AT_MOST = 0.05
"""Share below which reads count as warm."""
NEARLY_WARM = 0.1
"""Files that are to show what storage is worth may come from it by this share, which hides a tenth of its waits."""
LEAST_BYTES = 512
"""Bytes of storage an image, below which a data set does not read its samples from there."""
CLEARLY_LONGER = 3.0
"""Reading from storage and reading from memory must differ by this factor for waiting to tell them apart."""
LEAST_WAIT_S = 1e-4
"""And by so much an image. From: a file of 100 kB takes some 50 us from memory; locks and page faults are in both."""
SHORTEST_WAIT_S = 1e-6
"""No clock resolves a shorter wait."""
READ_AGAIN = 0.6
"""Cold batches of files that are read in parts read about as much each time, but for what is read ahead. Timed batches
that read and wait for less than this share of what all batches did were served by earlier reads."""
MADE_AGAIN = 0.6
"""Samples that take less than this share of the time, or CPU time, when made again were kept, in part at least."""
LEAST_SAVED_S = 0.05
"""Of the workers in all: saving less by that is no more than noise."""
FROM_ELSEWHERE = 0.05
"""Of samples of workers: so many on sockets and pipes show that the data come from there."""
READING_S_PER_BYTE = 3.2e-9
"""CPU time of reading itself, which warm files do not take. From: 1.1 ms of page faults for 356 kB of a mapped file."""
AMPLIFIED = 1.5
"""Times the bytes of a sample that the storage reads: less may be the rest of its pages. From: assumed."""

# Other processes, and rounds that saw other conditions
DISTURBED_FROM = 0.1
"""Others that take this share disturb: of the cores that may be used, of their time by a hypervisor, of the bytes that
the devices read. From: on a quiet machine with two cores, 19 segments of 0.1 to 0.8 s showed 2 % of the cores at most.
A virtual machine that was let alone showed up to 4 % stolen in half a second."""
LEAST_TAKEN_NS = 50_000_000
"""CPU time of others. Five ticks: less is noise, however short the segment."""
IDLE_BELOW = 0.25
"""Of the cores, or one core if that is more: with as much idle, what others take holds up nothing. From: assumed."""
LEAST_OTHER_READS = 1e6
"""Fewer bytes a second of others, such as of a program that starts, hold up no device. From: assumed."""
LIKE_CONDITIONS = 0.15
"""Of the cores: segments in which others took shares that differ by less saw like conditions."""
SLOW_START = 1.5
"""A first round so many times slower than each later one is a start: of connections, of imports, of a device that
wakes. From: rounds of token buckets in segments of 0.8 s differ by 1.4 at most in the runs seen."""
COLDER = 1.25
"""A first round that read this many times the bytes of later ones was the colder one, and not merely slow."""

# Storage and its ladder of concurrency
ABOVE_CEILING = 1.15
"""No cold rate is further above the measured ceiling, nor any above the rates seen. From: a ceiling is measured for
1.5 s, and the credit of a token bucket is spent within it."""
FAR_BELOW_CEILING = 0.1
"""Storage of which less is read than this share of its ceiling is no limit: a faster one would gain at most a tenth."""
NO_NEXT_LIMIT = 0.5
"""Storage that would be asked for less than this share of its ceiling at this concurrency is no next limit."""
FLAT = 1.4
"""More readers gain less than this on a device that one reader fills. From: planted ones gained 1.02 to 1.30, the one
disk at hand that one reader does not fill 1.64 and more (`scripts/bench bandwidth`)."""
SURELY_FLAT = 1.6
"""The same from the one end of the two intervals to the other: a noisy disk is given no kind."""
PROPORTIONAL = 0.7
"""Share of N times one reader's rate that N readers get where only latency limits them."""
PROPORTIONAL_READERS = 4
"""Steps of the ladder with fewer times the first one's readers do not show it."""
CREDIT_AT_MOST = 0.6
"""Of its usual time: after pauses of twice the reading time, which leave it a third of its load, a token bucket reads
in less. From: 0.05 to 0.45 on throttled block devices."""
LOST_AT_LEAST = 0.8
"""The same where no credit is saved. From: 0.9 or more on single servers and on latency-bound devices."""
HELD_BY_PROCESS = 1.1
"""As many readers in more ranks that gain this much were held up by their process, or their node."""
TWO_DOUBLINGS = 4
"""Times the readers, of all ranks: where so many gain nothing worth a word, the ladder has ended."""
UNFAIR = 0.8
"""A rank that gets less than this share of the fastest rank's rate is slow. From: equal ranks on one throttled disk had
0.89 to 0.96 of the fastest; one behind a path of its own 0.58."""
LONG_ENOUGH_S = 1.0
"""Of reading, to say of one rank that it is slow: a throttled disk grants its saved credit in the first 0.25 s."""

# Caches
LEAST_OF_LRU = 0.65
"""The fewest hits in epoch 2, as a share of those of a cache that drops the least recently used files. From: four
reading processes had 0.85 to 1.0 of them, workers of a DataLoader 0.69 to 1.0."""
WAY = 0.5
"""Hits of later epochs: of the way from such a cache to one whose files stay. From: `scripts/bench forecast caches`."""
MOST_WAY = 0.75
"""The most of that way: a larger cache answers more. From: a simulation of Linux's lists of pages for 1 TB."""
FITS_IN_PART = 0.3
"""Of the set: where memory holds less, a cache that drops the least recently used files answers under 5 % of reads in a
random order. From: c + (1 - c) ln(1 - c) with c = 0.3."""
MEMORY_SHARE = 0.7
"""Data of up to this share of memory can be kept there; the rest is for training."""

# Several ranks
FEWEST_RANKS = 2
"""Of a slow host: of one rank, the rank may be slow as well as its host."""
ONE_OF = 8
"""Of so many ranks of a slow host, one may be as fast as those elsewhere."""
READ_BY_ALL = 0.5
"""Of what is read again where all ranks read the same. From: shares that a distributed sampler makes equal overlap by
less than a batch, and shards that two ranks read by a few."""
FILES_OF_ALL = 3
"""Files that all share at most, such as one of labels, where each rank goes through a part of its own."""
DEEP = 8
"""Of batches that vary, a buffer of so many keeps most ranks from waiting for the slowest."""

# Timelines of a GPU
LEAST_IDLE = 0.1
"""What keeps the device idle for less of its time is no cause."""
HARDWARE_LATENCY_NS = 5_000
"""Between a call and its kernel the hardware alone takes a few microseconds; more is waiting for another stream."""
AFTER_SYNC_NS = 1_000_000
"""What follows a sync for longer is work of the host. From: the 90th percentile of real traces is 0.2 to 5 ms."""
STAGING_FACTOR = 10
"""A call that takes this many times as long as its copy did not stage memory for it: it waited for older work."""
LEAST_COVERAGE = 0.9
"""With less of the kernels' time known, an estimate would be of some kernels and not of the device."""
SYNCS_A_STEP = 0.5
"""From so many syncs a step on, they are worth a word."""
MOST_OVERHEAD = 0.05
"""Of the steps' time that the profiler may cost beyond what launches and syncs hold: else it has measured itself."""
MOST_WITHOUT_RECORD = 0.01
"""Of the kernels: each that was lost is a gap that was not there."""
MOST_CLOCK_SHIFT_NS = 50_000
"""Host and device are compared on one clock: it may be set by so much."""
MOST_CLOCK_DRIFT = 20e-6
"""And it may drift as good clocks do."""
MOST_DISAGREEMENT = 0.1
"""Shares of time idle for input, from rates and from gaps, are the same but for noise and for the overhead."""

# Recordings of a profiler
FEW_STEPS = 3
"""Fewer steps are worth a doubt."""
STEPS_VARY = 0.2
"""Of the mean step: one that is so much shorter or longer is worth a doubt."""
SLOW_FIRST_STEP = 2.0
"""A first step of more than so many usual ones is left out."""
LOADED_AHEAD = 32
"""Fewer steps without a wait may have been fed by batches loaded ahead: 8 workers x prefetch_factor 2, twice."""
SEVERAL_BATCHES = 1.5
"""So many batches in a ProfilerStep are steps of their own."""
LONG_NS = 2_000_000
"""A shorter function holds nothing up that is worth a name, nor is one looked for in a shorter gap."""
HELD_SHARE = 0.8
"""A function that covers so much of a gap held the host up for it."""
WAIT_DIFFERS = 0.05
"""Of a step: ranks whose communication differs by less wait alike."""

# Forecasts
REACHES_COMPUTE = 0.97
"""Of what compute does alone: training that repeats within 3 % reaches it, unless the loader holds it back."""
MISFIT = 1.5
"""Parts, or a model, that miss the measured rate by more than this do not describe the loader."""
RATES_DRIFT = 0.17
"""What makes the same loader run at another rate minutes later, even where the CPU is no limit. From: with this, ranges
held nine in ten of what three visits to five kinds of storage on a virtual machine measured."""
CPU_DRIFTS = 0.2
"""The same where the CPU is the limit. From: CPU speed drifted by 8 % in the median and 26 % at the 95th percentile
within 15 s, on an idle virtual machine: nine in ten times by no more than this."""
SPREAD_OF_NEXT = 1.5
"""Of the spread between three rounds, to hold the next."""
MOST_SPREAD = 0.6
"""A range that is wider says no more."""
NEAR_KNEE = 0.2
"""Near a knee the rate lies below both limits: by up to so much. From: a fifth in the experiments."""
UNSEEN_HANDOVER = 0.25
"""Of a worker's time: sending samples, which a serial loader does not show. From: float images took up to a quarter."""
UNSEEN_COPIES = 4.0
"""Of the time of putting samples together: sending them takes up to so many times as long. From: batches of 100 MB, on
two quiet cores. A serial loader, which put them together for 83 % of its time, made 133 and 141 samples/s, two workers
90 and 95, four 73 and 78, where the forecast was 319."""
MOST_DOWN = 0.9
"""No rate is forecast to fall by more."""
MODELS_DISAGREE = 1.3
"""Where the kind of the storage is not known, the three models may differ by this factor."""
LAYOUT_SAVES = 0.25
"""By this share at most the images of large files are faster than those of small ones, where none waits for storage:
fewer files are opened. From: tar from a disk of 100 requests/s was 11 to 19 % above what files had in memory."""
BY_REQUESTS = 0.5
"""Of twice the size of files, the share of twice the bytes/s: 1 where requests limit, 0 where bytes do."""
MOST_WORKERS_A_CORE = 2
"""No forecast for more workers than this times the cores that were measured on."""
MOST_FACTOR = 1000.0
"""Storage is called faster than needed beyond this factor."""
MORE_WORKERS = 4
"""More reads in flight than these times the workers are advised one step at a time."""
WIDE_RANGE = 0.25
"""Half the range of a forecast, or of opens/s, that is a larger share is worth a word: most models are within 0.2,
and one that was not proved is wider."""

# Plans
UTILIZATION = 0.9
"""Of their rate: what accelerators shall reach, unless another is asked for. From: MLPerf Storage, for ResNet-50."""
USE = 0.8
"""Share of a storage's limit to be used, unless another is asked for. From: assumed."""
STALE_AFTER_MONTHS = 12
"""Figures of the catalogue that were read longer ago are called stale."""

# Batch sizes
Z_SURE = 3.0
"""Standard errors of the bound that a smaller size must keep to be preferred."""
NEAR_BEST = 1.3
"""A size this close to the best is tried on either side."""
SLOW_PROBE_S = 15.0
"""A probe that took longer is doubled only where the rate still rises, not where it may."""
MOST_OCTAVES = 3.0
"""Octaves below the fastest size, beyond which rates say nothing of the top."""
