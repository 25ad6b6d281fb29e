# SPDX-License-Identifier: Apache-2.0
"""train.py, VGAE, on a made-up graph of 60 nodes with features of 20 words."""

import runpy
import sys
import types

import networkx as nx
import numpy as np
import scipy.sparse as sp

graph = nx.random_geometric_graph(60, 0.25, seed=0)
features = np.random.RandomState(0).rand(60, 20) > 0.7
made = types.ModuleType("input_data")
made.load_data = lambda dataset: (
    sp.csr_matrix(nx.to_numpy_array(graph)),
    sp.lil_matrix(features.astype(float)),
)
sys.modules["input_data"] = made
np.random.seed(0)  # the edges that are held out

import args

args.model, args.input_dim, args.num_epoch = "VGAE", 20, 60
runpy.run_path("train.py", run_name="__main__")
