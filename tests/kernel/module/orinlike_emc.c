// SPDX-License-Identifier: GPL-2.0
/*
 * orinlike_emc - the memory clock of a Jetson AGX Orin as its power-management firmware shows it.
 *
 * A module of its own because whoever reads the clock keeps the file open, and with it the module.
 */
#include <linux/debugfs.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/seq_file.h>

static const u64 emc_table[] = { 204000000, 665600000, 2133000000, 3199000000ULL };
#define EMC_TOP (ARRAY_SIZE(emc_table) - 1)

static u64 emc_locked, emc_wish = 3199000000ULL;

static u64 emc_now(void)
{
	return emc_locked ? emc_wish : emc_table[EMC_TOP];
}

static int emc_rate_set(u64 value)
{
	int i;

	if (value < emc_table[0] || value > emc_table[EMC_TOP])
		return 0;	/* ignored without a word, as on the board */
	for (i = 0; emc_table[i] < value; i++)
		;
	emc_wish = emc_table[i];
	return 0;
}

static int emc_lock_set(u64 value)
{
	emc_wish = emc_now();
	emc_locked = !!value;
	return 0;
}

/* Seq files like BPMP's own, which can be read at a position; a debugfs attribute cannot. */
struct emc_file {
	u64 (*get)(void);
	int (*set)(u64 value);
};

static u64 emc_lock_get(void)
{
	return emc_locked;
}

static const struct emc_file emc_rate = { emc_now, emc_rate_set };
static const struct emc_file emc_lock = { emc_lock_get, emc_lock_set };

static int emc_show(struct seq_file *file, void *unused)
{
	const struct emc_file *which = file->private;

	seq_printf(file, "%llu\n", which->get());
	return 0;
}

static int emc_open(struct inode *inode, struct file *file)
{
	return single_open(file, emc_show, inode->i_private);
}

static ssize_t emc_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	const struct emc_file *which = ((struct seq_file *)file->private_data)->private;
	u64 value;
	int err = kstrtou64_from_user(from, count, 0, &value);

	if (!err)
		err = which->set(value);
	return err ? err : count;
}

static const struct file_operations emc_fops = {
	.owner		= THIS_MODULE,
	.open		= emc_open,
	.read		= seq_read,
	.write		= emc_write,
	.llseek		= seq_lseek,
	.release	= single_release,
};

static int emc_fixed_get(void *data, u64 *value)
{
	*value = *(const u64 *)data;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(emc_fixed_fops, emc_fixed_get, NULL, "%llu\n");

/* What the hardware counter of a real board read for its nominal clock. */
static int emc_counter_get(void *unused, u64 *value)
{
	*value = div_u64(emc_now() / 1000 * 3191887872ULL, 3199000);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(emc_counter_fops, emc_counter_get, NULL, "%llu\n");

static int possible_rates_show(struct seq_file *file, void *unused)
{
	int i;

	for (i = 0; i <= EMC_TOP; i++)
		seq_printf(file, "%llu ", emc_table[i] / 1000);
	seq_putc(file, '\n');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(possible_rates);

static u64 emc_on = 1;
static struct dentry *bpmp;

static int __init orinlike_emc_init(void)
{
	struct dentry *debug, *emc;

	bpmp = debugfs_create_dir("bpmp", NULL);
	debug = debugfs_create_dir("debug", bpmp);
	emc = debugfs_create_dir("emc", debug);
	debugfs_create_file("possible_rates", 0444, emc, NULL, &possible_rates_fops);
	emc = debugfs_create_dir("emc", debugfs_create_dir("clk", debug));
	debugfs_create_file("rate", 0644, emc, (void *)&emc_rate, &emc_fops);
	debugfs_create_file("mrq_rate_locked", 0644, emc, (void *)&emc_lock, &emc_fops);
	debugfs_create_file("min_rate", 0444, emc, (void *)&emc_table[0], &emc_fixed_fops);
	debugfs_create_file("max_rate", 0444, emc, (void *)&emc_table[EMC_TOP], &emc_fixed_fops);
	debugfs_create_file("state", 0444, emc, &emc_on, &emc_fixed_fops);
	debugfs_create_file("pto_counter", 0444, emc, NULL, &emc_counter_fops);
	return 0;
}

static void __exit orinlike_emc_exit(void)
{
	debugfs_remove_recursive(bpmp);
}

module_init(orinlike_emc_init);
module_exit(orinlike_emc_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Memory clock of a Jetson AGX Orin without hardware, for tests");
