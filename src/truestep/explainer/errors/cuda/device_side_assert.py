# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class DeviceSideAssert(Explainer):
    """A kernel on the GPU met a value it refuses, nearly always an index out of range.

    Means: the GPU reports late, so the line shown is not the one that failed, and this process can't use CUDA any more.

    Recorded:
        ../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [3,0,0]
        Assertion `t >= 0 && t < n_classes` failed.
        RuntimeError: CUDA error: device-side assert triggered
        CUDA kernel errors might be asynchronously reported at some other API call.

    Fix: run one batch on the CPU, where the same mistake raises at its line and names the label or index (or set
    CUDA_LAUNCH_BLOCKING=1). Then restart: nothing of this process runs on the GPU after it.

    Cases:
        `label=`: the kernel is that of cross entropy: a label is negative, or as large as the number of classes or larger.
            Fix: give the last layer as many outputs as there are classes, and count labels from 0; loss(outputs.cpu(),
            labels.cpu()) names the label.
        `row=`: the kernel is that of a look-up: a token or index reaches beyond an embedding's rows.
            Fix: compare ids.max() with the embedding's num_embeddings (positions too); on the CPU the line is named.
        `index=`: the kernel is that of indexing, gather or scatter: an index is out of bounds.
            Fix: run the line on the CPU, where the index and the size are named.
        `output=`: the kernel is that of binary cross entropy: an output is not between 0 and 1, or it is NaN.
            Fix: use binary_cross_entropy_with_logits on raw outputs; if they are NaN, look for the first NaN.
        `draw=`: the kernel is that of multinomial: a probability is NaN, infinite or negative.
            Fix: look for the first NaN in the logits; with float16 compute the softmax in float32.
        `of_loss=`: the line is one of a loss: most likely a label below 0, or as large as the number of classes or larger.
            Fix: print labels.min() and labels.max() beside the last layer's outputs; on the CPU the loss names the label.
    """

    messages = (
        r"CUDA error: device-side assert triggered",
        r"cuda runtime error \(59\)",
        r"CUBLAS_STATUS_NOT_INITIALIZED.*device-side assert",
        r"HIP error: device-side assert",
        r"transform: failed to synchronize: cudaErrorAssert",
        r"Assertion `(?:t >= 0 && t < n_c|srcIndex < srcS|idx_dim >= 0 && idx|index >= -sizes)[^`']*[`'] failed",
        r"\.cuh?:\d+: .{0,2000}(?:block: \[[\d, ]+\], )?thread: \[[\d, ]+\] Assertion",
    )
    besides = (
        r"(?P<label>(?:t|cur_target) >= 0 && (?:t|cur_target) < n_classes|nll_loss|ClassNLLCriterion)",
        r"(?P<row>srcIndex < srcSelectDimSize|indexSelect|vectorized_gather_kernel|EmbeddingBag|Indexing\.cu)",
        r"(?P<index>index out of bounds|idx_dim|-sizes\[i\] <= index)",
        r"(?P<output>input_val >= zero && input_val <= one|>= 0\. && \*input <= 1\.|Loss\.cu.*binary)",
        r"(?P<draw>probability tensor|multinomial|MultinomialKernel|val >= 0)",
    )
    anywhere = True
    not_in_a_log = "which value it was"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        names = " ".join(frame.text for frame in crash.frames if frame.is_users).lower()
        is_of_loss = any(word in names for word in ("loss", "criterion", "cross_entropy"))
        return {"of_loss": "yes"} if is_of_loss else {}
