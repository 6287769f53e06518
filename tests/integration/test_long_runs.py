"""Long runs keep no more memory and no more files open than short ones."""

import csv
from pathlib import Path

import pytest

WATCH = """
import gc
import os
from lightning.pytorch import Callback

class Watch(Callback):
    '''Notes memory and open files of the process each so many steps.'''

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step % self.every == 0:
            gc.collect()
            memory = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            files, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            with open("watched.csv", "a") as stream:
                stream.write(f"{trainer.global_step},{memory},{files},{threads}\\n")
"""


@pytest.fixture
def smallest_bert(tmp_path):
    """A model folder whose steps take a millisecond: 1 layer of 8."""
    from transformers import BertForSequenceClassification

    from bert_lightning.demo.mini_bert import mini_config, mini_tokenizer

    config = mini_config(num_labels=4)
    config.hidden_size = config.intermediate_size = 8
    config.num_hidden_layers = config.num_attention_heads = 1
    BertForSequenceClassification(config).save_pretrained(tmp_path / "smallest")
    mini_tokenizer().save_pretrained(tmp_path / "smallest")
    return tmp_path / "smallest"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("steps", "settled", "growth_mib"),
    [(1_500, 500, 2), pytest.param(20_000, 2_000, 4, marks=pytest.mark.slow)],
)
def test_memory_and_open_files_stay_as_they_are(
    run_process, news_folder, smallest_bert, tmp_path, steps, settled, growth_mib
):
    """Epochs are of 64 steps, each fourth with a validation and a checkpoint."""
    (tmp_path / "watch.py").write_text(WATCH, encoding="utf-8")
    watch = f"[{{class_path: watch.Watch, init_args: {{every: {steps // 30}}}}}]"
    status, out, err = run_process(
        *("fit", "--data.path", news_folder, "--model.pretrained", smallest_bert),
        *("--data.batch_size", "1", "--trainer.max_steps", steps, "--trainer.max_epochs", "-1"),
        *("--trainer.log_every_n_steps", "10", "--trainer.check_val_every_n_epoch", "4"),
        *("--test_after_fit", "false"),
        *("--trainer.callbacks", watch),
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert status == 0, out + err
    with (tmp_path / "watched.csv").open() as stream:
        rows = [tuple(map(int, row)) for row in csv.reader(stream)]
    kept = [row for row in rows if row[0] >= settled]
    for step, memory, files, threads in (kept[0], kept[len(kept) // 2], kept[-1]):
        print(f"step {step:,}: {memory / 2**20:.1f} MiB, {files} files, {threads} threads")
    assert kept[-1][0] > steps * 0.95
    assert kept[-1][1] - kept[0][1] < growth_mib << 20
    assert kept[-1][2] <= kept[0][2]
    assert kept[-1][3] <= kept[0][3]
