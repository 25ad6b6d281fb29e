# SPDX-License-Identifier: Apache-2.0
from truestep.engine.data.batch_source import BatchSource as BatchSource
from truestep.engine.data.mixture import Mixture as Mixture
from truestep.engine.data.options import BlockShuffle as BlockShuffle
from truestep.engine.data.options import ByLength as ByLength
from truestep.engine.data.options import DataOptions as DataOptions
from truestep.engine.data.randomness import sample_rng as sample_rng
from truestep.engine.data.source_opening import open_source as open_source
