"""Read files of records as Arrow batches, without Beam: plan on the driver, read on the workers.

plan = plan_inputs(files, source)                    # checks everything, raises InputError
for item in plan.items:                              # anywhere, in any order
    for chunk in read_item(item, plan, open_local):
        chunk.batch                                  # pyarrow.RecordBatch of plan.schema, no null identifier
        chunk.rejected                               # {"url is null": 3}: exact, for the operator alone
"""

from hushgram.inputs.plan import plan_inputs
from hushgram.inputs.preflight import Check, Limits, RecordCounts, check_first_blocks, read_item
from hushgram.inputs.source import REJECTED_SCHEMA, Chunk, InputFile, InputPlan, Source, WorkItem, open_local

__all__ = [
    "REJECTED_SCHEMA", "Check", "Chunk", "InputFile", "InputPlan", "Limits", "RecordCounts", "Source", "WorkItem",
    "check_first_blocks", "open_local", "plan_inputs", "read_item",
]  # fmt: skip
