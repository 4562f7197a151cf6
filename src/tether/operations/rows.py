"""What PyTorch's schema does not say of an operation: our own rows, beside the generated ones.

Each name has the columns of `operations.table.Operation` that differ from their defaults. What the
rulebook says of copies, views and writes is tried on the installed PyTorch by its experiments.
"""

from __future__ import annotations

from typing import Any

from tether.operations.table import Spared

Row = dict[str, Any]


def _each(names: str, **columns: Any) -> dict[str, Row]:
    return dict.fromkeys(names.split(), columns)


def _joined(*groups: dict[str, Row]) -> dict[str, Row]:
    """Join the columns that several groups give one name."""
    rows: dict[str, Row] = {}
    for group in groups:
        for name, columns in group.items():
            rows[name] = {**rows.get(name, {}), **columns}
    return rows


SAME_AS = {
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
    "__idiv__": "div_", "__ifloordiv__": "floor_divide_", "__imod__": "remainder_",
    "__ipow__": "pow_", "__iand__": "bitwise_and_", "__ior__": "bitwise_or_",
    "__ixor__": "bitwise_xor_", "__ilshift__": "bitwise_left_shift_",
    "__irshift__": "bitwise_right_shift_", "__add__": "add", "__radd__": "add", "__sub__": "sub",
    "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__rtruediv__": "div", "__div__": "div", "__rdiv__": "div", "__floordiv__": "floor_divide",
    "__rfloordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "pow", "__rpow__": "pow",
    "__matmul__": "matmul", "__neg__": "neg", "__abs__": "abs", "__gt__": "gt", "__lt__": "lt",
    "__ge__": "ge", "__le__": "le", "__eq__": "eq", "__ne__": "ne", "__and__": "bitwise_and",
    "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__invert__": "bitwise_not",
}  # fmt: skip
"""Python's own names for calls, and PyTorch's, whose row they have; what `ROWS` says of Python's
own name goes before it."""

ROWS: dict[str, Row] = _joined(
    # Values that become something else than a tensor, and what becomes one. What else is true of
    # all that leave in this way is said with it; tests/unit/test_operations.py holds them together.
    _each(
        "item __float__ __int__ __index__ __complex__", leaves="number", memory="owns", waits=True
    ),
    _each("__bool__ is_nonzero", leaves="truth", memory="owns", waits=True, notes="answer"),
    _each("equal allclose", leaves="answer", waits=True),
    _each("__contains__", leaves="answer"),
    _each("tolist", leaves="numbers", memory="owns", waits=True, moves=True),
    _each("numpy __array__", leaves="array", memory="shares", waits=True, compact=True),
    _each("__dlpack__ to_dlpack", leaves="capsule", memory="shares"),
    _each("__repr__ __str__ __format__", leaves="text"),
    _each("__reduce_ex__", leaves="pickle"),
    _each("data_ptr", leaves="address", carries=False),
    _each("is_contiguous stride dim_order", strides=True, carries=False, template=(-1,)),
    _each("Queue.put", leaves="process", shown="a queue"),
    _each("all_reduce allreduce all_reduce_coalesced allreduce_coalesced", reduces=True),
    _each("tensor as_tensor asarray from_numpy frombuffer from_dlpack scalar_tensor", enters=True),
    _each(
        "Tensor FloatTensor DoubleTensor HalfTensor BFloat16Tensor BoolTensor LongTensor IntTensor"
        " ShortTensor CharTensor ByteTensor",
        enters=True,
    ),
    _each("new_tensor", enters=True, mixes=True),
    _each(
        "sub subtract rsub dist allclose equal isclose mse_loss l1_loss smooth_l1_loss huber_loss"
        " cdist pairwise_distance cosine_similarity kl_div",
        compares=True,
    ),
    _each("cross_entropy kl_div binary_cross_entropy binary_cross_entropy_with_logits", aims=True),
    _each("add_ sub_ lerp_ addcmul_ addcdiv_", blends=True),
    _each("div div_ divide true_divide", divides=True),
    _each(
        "add sub subtract rsub mul multiply div divide true_divide pow float_power lerp add_ sub_"
        " mul_ div_ pow_ full full_like new_full fill fill_ masked_fill masked_fill_ __setitem__",
        mixes=True,
    ),
    _each(
        "grad.__get__ grad.__set__ backward step zero_grad set_grad_enabled register_hook save"
        " requires_grad.__set__ retain_grad __repr__ __str__ __format__ __reduce_ex__ is_nonzero",
        carries=False,
    ),
    _each(
        "type_as expand_as view_as reshape_as resize_as resize_as_ to to_sparse_like", template=(1,)
    ),
    _each("new_tensor", template=(0,)),
    _each(
        "detach Variable data.__get__ clone contiguous numpy pin_memory share_memory_ to cpu cuda"
        " type type_as float double half bfloat16 alias coalesce to_dense to_sparse to_sparse_coo"
        " to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc",
        same=True,
    ),
    _each(
        "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor"
        " sparse_compressed_tensor",
        packs=True,
    ),
    _each(
        "gt lt ge le eq ne greater less greater_equal less_equal not_equal isclose isnan isinf"
        " isfinite logical_and logical_or logical_not logical_xor",
        selects="comparison",
    ),
    _each(
        "sgn sgn_ fix fix_ heaviside heaviside_ floor_divide floor_divide_",
        flat=True,
    ),
    _each(
        "argmax argmin argsort topk max min sort median mode kthvalue searchsorted bucketize"
        " nonzero multinomial argwhere msort unique nanmedian cummax cummin aminmax",
        selects="index",
    ),
    _each(
        "normal normal_ bernoulli bernoulli_ poisson binomial multinomial uniform uniform_"
        " exponential exponential_ geometric geometric_ cauchy cauchy_ log_normal log_normal_"
        " random random_ rand rand_like randn randn_like randint randint_like randperm"
        " _standard_gamma _sample_dirichlet trunc_normal_",
        draws=True,
    ),
    # Memory: what gives the same elements, in memory of their own or not.
    _each("clone contiguous tensor new_tensor __deepcopy__ copy_", copies="clone"),
    _each(
        "float double half bfloat16 int long short char byte bool cfloat cdouble chalf type"
        " type_as",
        copies="cast",
    ),
    _each("to cpu cuda", copies="move"),
    _each("as_tensor asarray", copies="clone"),
    _each("detach Variable data.__get__", outside=True, view=True),
    _each("data.__get__ as_tensor asarray from_numpy frombuffer from_dlpack", own_counter=True),
    _each("copy_ tensor new_tensor load_state_dict", memory="owns"),
    _each("data.__set__ set_ from_numpy frombuffer from_dlpack state_dict", memory="shares"),
    _each(
        "detach detach_ Variable data.__get__ data.__set__ set_ Parameter state_dict"
        " load_state_dict",
        listed=True,
    ),
    _each(
        "T.__get__ mT.__get__ H.__get__ mH.__get__ real.__get__ imag.__get__ __getitem__", view=True
    ),
    _each("indices _indices crow_indices col_indices ccol_indices row_indices", indices=True),
    _each("flatten ravel reshape reshape_as view view_as unflatten", regroups=True, compact=True),
    _each("resize_ set_ pin_memory", compact=True),
    _each(
        "__getitem__ index_select masked_select take gather take_along_dim where pad roll"
        " interpolate adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
        picks=True,
    ),
    _each(
        "interpolate adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
        pools=True,
    ),
    _each("__setitem__ index_put index_put_ index_copy index_copy_ scatter scatter_", places=True),
    _each(
        "index_copy index_add index_reduce scatter scatter_add scatter_reduce select_scatter"
        " slice_scatter diagonal_scatter",
        puts="given",
    ),
    _each("index_fill index_put", puts="numbered"),
    _each("cat concat concatenate hstack", joins="along"),
    _each("stack vstack row_stack dstack column_stack", joins="new"),
    _each("repeat tile repeat_interleave", repeats=True),
    _each("roll", shifts=True),
    _each("sum mean nansum nanmean", adds=True),
    _each("matmul bmm scaled_dot_product_attention", multiplies=True),
    _each("scaled_dot_product_attention", as_they_lie=True),
    _each("all any max min amax amin", in_parts=True),
    # Nothing but sums: no argument that is written on the side (running statistics, rows beyond a
    # norm). What draws (dropout) gives something else each time, and is not taken for the same.
    _each(
        "sum mean nansum nanmean prod var std norm vector_norm logsumexp cumsum cumprod softmax"
        " log_softmax matmul __matmul__ __rmatmul__ mm bmm mv dot inner addmm addbmm baddbmm addmv"
        " einsum tensordot linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d"
        " conv_transpose3d layer_norm group_norm avg_pool1d avg_pool2d avg_pool3d cdist"
        " cosine_similarity scaled_dot_product_attention",
        rounds=True,
    ),
    _each(
        "expand expand_as broadcast_to broadcast_tensors as_strided as_strided_ unfold meshgrid",
        spreads=True,
    ),
    _each(
        "bincount histc histogram histogramdd unique unique_consecutive cov corrcoef nonzero"
        " cartesian_prod combinations argwhere masked_select repeat_interleave",
        single=True,
    ),
    _each("empty empty_like new_empty empty_strided new_empty_strided empty_permuted", empty=True),
    _each(
        "zeros empty ones full zeros_like empty_like ones_like full_like new_zeros new_empty"
        " new_ones new_full",
        blank=True,
    ),
    _each(
        "amax amin item tolist any all equal cat stack index_select gather nonzero copy_ isin"
        " unique bincount count_nonzero __bool__ __float__ __int__ __repr__ __format__ __setitem__"
        " fill_ zero_ argmax argmin max min argsort sort cummax cummin one_hot searchsorted",
        any_strides=True,
    ),
    _each("unique bincount one_hot embedding", lays_out=(0,)),
    _each("searchsorted bucketize", lays_out=(0, 1)),
    _each(
        "add sub subtract mul multiply div divide true_divide neg negative abs absolute sign relu"
        " maximum minimum clamp floor ceil round trunc eq ne lt le gt ge logical_and"
        " logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not isnan"
        " isinf isfinite where masked_fill square clone float double half bfloat16 int long short"
        " byte bool to cpu cuda type type_as",
        exact=True,
    ),
    _each("conv2d conv3d", either_order=True),
    _each("_pack_padded_sequence", unpads=True, shown="pack_padded_sequence"),
    # Results that nothing may ask for.
    _each(
        "linalg_svd",
        spares=(
            Spared(0, "full_matrices=False", dimension=-1),
            Spared(2, "full_matrices=False", dimension=-2),
        ),
    ),
    _each("linalg_qr", spares=(Spared(0, 'mode="r"'),)),
    _each("linalg_eigh", spares=(Spared(1, "torch.linalg.eigvalsh"),)),
    _each("linalg_eig", spares=(Spared(1, "torch.linalg.eigvals"),)),
    _each(
        "multi_head_attention_forward",
        known=False,
        spares=(Spared(1, "need_weights=False"),),
    ),
    _each("scripted", known=False, shown="TorchScript"),
    # Writes.
    _each(
        "copy_ set_ data.__set__ trunc_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_"
        " xavier_normal_ ones_ zeros_ constant_ orthogonal_ eye_ dirac_ sparse_",
        writes="values",
        overwrites=True,
    ),
    _each(
        "__setitem__ index_put_ index_fill_ index_copy_ index_add_ index_reduce_ masked_fill_"
        " masked_scatter_ scatter_ scatter_add_ scatter_reduce_ put_ fill_diagonal_",
        writes="values",
        part=True,
    ),
    _each("backward zero_grad step", accumulates=True),
    _each("zero_grad", clears=True),
    _each(
        "clamp_ clamp_min_ clamp_max_ clip_ _foreach_clamp_min_ _foreach_clamp_max_", bounds=True
    ),
    _each("_amp_foreach_non_finite_check_and_unscale_", unscales=True),
    _each("_amp_update_scale_", rescales=True),
    _each("apply_ map_ map2_ real.__set__ imag.__set__", writes="values"),
    _each(
        "retain_grad requires_grad_", writes=""
    ),  # the schema calls it a write, of nothing but a flag
    # The graph: a new leaf of old values.
    _each("tensor new_tensor as_tensor from_numpy Parameter Variable", rebuilds=True),
    _each("detach detach_ Variable data.__get__ data.__set__ Parameter", cuts=True),
    _each("grad.__get__ autograd.grad backward step", gradients=True),
    # What is done to the object itself, or to the memory behind it.
    _each("requires_grad_ requires_grad.__set__", own="has its own requires_grad"),
    _each("retain_grad", own="retains its own gradient"),
    _each("register_hook register_post_accumulate_grad_hook", own="has a hook of its own"),
    _each("grad.__get__", own="is asked for its own gradient"),
    _each("grad.__set__", own="takes part in a gradient that is set"),
    _each("detach_", own="is cut from the graph in place"),
    _each("swap_tensors", own="is swapped with another tensor"),
    _each("backward", own="is what backward starts from"),
    _each("autograd.grad", own="is differentiated by name"),
    _each("__setstate__", own="is filled anew"),
    _each("set_ data.__set__", replaces="is given other memory"),
    _each("resize_ resize_as_", replaces="is given another size"),
    _each("set_ data.__set__ swap_tensors", rebinds=True),
    _each("share_memory_", replaces="is moved to shared memory"),
    _each("Parameter", replaces="becomes a Parameter of its own", wraps=True),
    _each("Parameter Variable detach data.__get__ requires_grad_ __getitem__", makes=True),
    _each(
        "data.__set__ set_ resize_ resize_as_ detach_ requires_grad_ requires_grad.__set__"
        " swap_tensors share_memory_ pin_memory_",
        retypes=True,
    ),
    # Devices.
    _each("cpu nonzero", waits=True),
    _each("to cpu cuda copy_ type type_as as_tensor tensor asarray", moves=True),
    # What is noted of a call.
    _each("to cuda type copy_", notes="non-blocking"),
    _each("batch_norm instance_norm", notes="statistics", aside=True),
    _each("set_grad_enabled", notes="mode"),
    _each("requires_grad_ requires_grad.__set__", notes="wanted"),
    _each("stack", notes="dimension"),
    _each("embedding", notes="padding", rows=True),
    _each("grad.__get__", notes="gradient read"),
    _each("grad.__set__", notes="gradient assigned"),
    _each("register_hook", notes="hook"),
    # As a reader writes them.
    {
        "data.__get__": {"shown": ".data"},
        "data.__set__": {"shown": ".data ="},
        "grad.__get__": {"shown": ".grad"},
        "grad.__set__": {"shown": ".grad ="},
        "__deepcopy__": {"shown": "deepcopy"},
        "__array__": {"shown": "numpy"},
        "__dlpack__": {"shown": "dlpack"},
        "__float__": {"shown": "float()"},
        "__int__": {"shown": "int()"},
        "__bool__": {"shown": "bool()"},
        "__complex__": {"shown": "complex()"},
        "__index__": {"shown": "an index"},
        "__setitem__": {"shown": "an assignment to an index"},
        "__getitem__": {"shown": "indexing"},
        "__iadd__": {"shown": "+="},
        "__isub__": {"shown": "-="},
        "__imul__": {"shown": "*="},
        "__itruediv__": {"shown": "/="},
        "apply": {"shown": "a custom Function"},
    },
    _each("__deepcopy__", typed="deepcopy"),
    _each("data.__get__", typed="data"),
    _each("__array__", typed="numpy"),
    # What says nothing about ties.
    _each(
        "size dim numel element_size storage_offset"
        " is_floating_point is_complex ndimension nelement __len__ __hash__ get_device is_pinned"
        " is_inference untyped_storage typed_storage has_names _is_view __dir__"
        " is_same_size is_conj is_neg result_type can_cast __dlpack_device__ is_signed is_shared"
        " is_sparse sparse_dim dense_dim is_coalesced qscheme storage_type is_set_to"
        " is_nonzero_static get_default_dtype _is_zerotensor is_distributed"
        " _has_compatible_shallow_copy_type is_tensor is_storage promote_types",
        silent=True,
    ),
    _each("storage volatile.__set__", warns=True),
    # Recorded where they enter the engine, with their hooks.
    _each("backward autograd.grad", silent=True),
)
