// SPDX-License-Identifier: GPL-2.0
/*
 * orinlike - the clocks of a Jetson AGX Orin with no hardware behind them.
 *
 * It registers a cpufreq driver, a devfreq GPU, and cooling devices that cap both. What user space
 * meets under /sys is the kernel's own cpufreq, devfreq and thermal core; this file only has the
 * tables, remembers the step last asked for, and fails, caps and dawdles as its parameters say.
 */
#include <linux/cpu.h>
#include <linux/cpufreq.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/devfreq.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/pm_opp.h>
#include <linux/pm_qos.h>
#include <linux/seq_file.h>
#include <linux/thermal.h>

#define GPU_NAME "17000000.gpu"

static int clusters[NR_CPUS] = { 2, 1, 1 };
static int cluster_count = 3;
module_param_array(clusters, int, &cluster_count, 0444);
MODULE_PARM_DESC(clusters, "CPUs in each cluster");
static int cpu_steps = -1;
module_param(cpu_steps, int, 0444);
MODULE_PARM_DESC(cpu_steps, "length of the CPU table; 0: a driver that shows an empty list");

/* What the hardware does; all may be changed while it runs. */
static int cpu_errno, gpu_errno;
module_param(cpu_errno, int, 0644);
MODULE_PARM_DESC(cpu_errno, "what a CPU transition fails with; 0: it works");
module_param(gpu_errno, int, 0644);
MODULE_PARM_DESC(gpu_errno, "what a GPU transition fails with; 0: it works");
static uint cpu_cap_khz;
module_param(cpu_cap_khz, uint, 0644);
MODULE_PARM_DESC(cpu_cap_khz, "clock that the CPUs do not exceed whatever is set; 0: none");
static ulong gpu_cap_hz;
module_param(gpu_cap_hz, ulong, 0644);
MODULE_PARM_DESC(gpu_cap_hz, "clock that the GPU does not exceed whatever is set; 0: none");
static uint cpu_delay_us, gpu_delay_us;
module_param(cpu_delay_us, uint, 0644);
MODULE_PARM_DESC(cpu_delay_us, "how long a CPU transition takes");
module_param(gpu_delay_us, uint, 0644);
MODULE_PARM_DESC(gpu_delay_us, "how long a GPU transition takes");
static uint gpu_load = 500;
module_param(gpu_load, uint, 0644);
MODULE_PARM_DESC(gpu_load, "load that the GPU tells its governor, per mille");

/* ---- transitions: counted, and the newest kept with their time ---- */

#define KEPT 4096

struct transition {
	u64 ns;			/* CLOCK_MONOTONIC, when it was over */
	int first_cpu;		/* -1: the GPU */
	unsigned long freq;	/* in the unit of its files */
};

static struct transition kept[KEPT];
static unsigned int cpu_transitions, gpu_transitions, transitions;
static DEFINE_SPINLOCK(kept_lock);
module_param(cpu_transitions, uint, 0444);
MODULE_PARM_DESC(cpu_transitions, "CPU transitions so far, all clusters");
module_param(gpu_transitions, uint, 0444);
MODULE_PARM_DESC(gpu_transitions, "GPU transitions so far");

static void keep(int first_cpu, unsigned long freq)
{
	spin_lock(&kept_lock);
	kept[transitions++ % KEPT] = (struct transition){ ktime_get_ns(), first_cpu, freq };
	if (first_cpu < 0)
		gpu_transitions++;
	else
		cpu_transitions++;
	spin_unlock(&kept_lock);
}

static int transitions_show(struct seq_file *file, void *unused)
{
	unsigned int i = transitions > KEPT ? transitions - KEPT : 0;

	for (; i != transitions; i++) {
		struct transition *t = &kept[i % KEPT];

		seq_printf(file, "%llu %d %lu\n", t->ns, t->first_cpu, t->freq);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(transitions);

/* ---- CPU ---- */

/* Jetson AGX Orin in MAXN, kHz: steps of 76.8 MHz and the odd one at the top. */
#define CPU_STEPS 29
#define CPU_STEP_KHZ 76800
#define CPU_FIRST_KHZ 115200
#define CPU_LAST_KHZ 2201600

static struct cpufreq_frequency_table cpu_table[CPU_STEPS + 1];
static unsigned int cluster_khz[NR_CPUS];		/* by the first CPU of a cluster */
static struct freq_qos_request cpu_limit[NR_CPUS];
static struct thermal_cooling_device *cpu_cooler[NR_CPUS];
static unsigned long cpu_state[NR_CPUS];

static void cluster_of(unsigned int cpu, unsigned int *first, unsigned int *end)
{
	int i;

	*end = 0;
	for (i = 0; i < cluster_count; i++) {
		*first = *end;
		*end += clusters[i];
		if (cpu < *end)
			return;
	}
	*first = cpu;
	*end = cpu + 1;
}

static unsigned int first_of(unsigned int cpu)
{
	unsigned int first, end;

	cluster_of(cpu, &first, &end);
	return first;
}

static unsigned int cpu_get(unsigned int cpu)
{
	unsigned int khz = cluster_khz[first_of(cpu)];

	return cpu_cap_khz ? min(khz, cpu_cap_khz) : khz;
}

static int cpu_set(struct cpufreq_policy *policy, unsigned int khz)
{
	unsigned int first = first_of(policy->cpu);

	if (cpu_delay_us)
		usleep_range(cpu_delay_us, cpu_delay_us + 20);
	if (cpu_errno)
		return -abs(cpu_errno);
	cluster_khz[first] = khz;
	keep(first, khz);
	return 0;
}

static int cpu_target_index(struct cpufreq_policy *policy, unsigned int index)
{
	return cpu_set(policy, policy->freq_table[index].frequency);
}

/* Of a driver that has no table. */
static int cpu_target(struct cpufreq_policy *policy, unsigned int khz, unsigned int relation)
{
	struct cpufreq_freqs freqs = { .old = policy->cur, .new = khz };
	int err;

	cpufreq_freq_transition_begin(policy, &freqs);
	err = cpu_set(policy, khz);
	cpufreq_freq_transition_end(policy, &freqs, err);
	return err;
}

static int cpu_verify_range(struct cpufreq_policy_data *policy)
{
	cpufreq_verify_within_cpu_limits(policy);
	return 0;
}

static ssize_t show_nothing(struct cpufreq_policy *policy, char *buf)
{
	return sprintf(buf, "\n");
}

static struct freq_attr empty_list = {
	.attr = { .name = "scaling_available_frequencies", .mode = 0444 },
	.show = show_nothing,
};

static struct freq_attr *without_table[] = { &empty_list, NULL };

static int policy_init(struct cpufreq_policy *policy)
{
	unsigned int cpu, first, end;

	cluster_of(policy->cpu, &first, &end);
	for (cpu = first; cpu < end; cpu++)
		if (cpu_possible(cpu))
			cpumask_set_cpu(cpu, policy->cpus);
	if (cpu_steps)
		policy->freq_table = cpu_table;
	policy->cpuinfo.min_freq = CPU_FIRST_KHZ;
	policy->cpuinfo.max_freq = CPU_LAST_KHZ;
	policy->cpuinfo.transition_latency = 300 * NSEC_PER_USEC;
	if (!cluster_khz[first])
		cluster_khz[first] = cpu_steps ? cpu_table[cpu_steps - 1].frequency : CPU_LAST_KHZ;
	policy->cur = cluster_khz[first];
	return 0;
}

static struct cpufreq_driver cpu_driver = {
	.name		= "orinlike",
	.flags		= CPUFREQ_NEED_INITIAL_FREQ_CHECK,
	.init		= policy_init,
	.verify		= cpufreq_generic_frequency_table_verify,
	.target_index	= cpu_target_index,
	.get		= cpu_get,
	.attr		= cpufreq_generic_attr,
};

static void fill_table(void)
{
	int i, all = cpu_steps < 0 || cpu_steps > CPU_STEPS;

	if (all)
		cpu_steps = CPU_STEPS;
	for (i = 0; i < cpu_steps; i++)
		cpu_table[i].frequency = CPU_FIRST_KHZ + i * CPU_STEP_KHZ;
	if (cpu_steps == CPU_STEPS)
		cpu_table[CPU_STEPS - 1].frequency = CPU_LAST_KHZ;
	cpu_table[cpu_steps].frequency = CPUFREQ_TABLE_END;
	if (!cpu_steps) {
		cpu_driver.target_index = NULL;
		cpu_driver.target = cpu_target;
		cpu_driver.verify = cpu_verify_range;
		cpu_driver.attr = without_table;
	}
}

/* A thermal governor's request for a lower maximum, as cpufreq_cooling makes it. */
static int cpu_policy_event(struct notifier_block *unused, unsigned long event, void *data)
{
	struct cpufreq_policy *policy = data;
	unsigned int first = first_of(policy->cpu);

	if (event == CPUFREQ_CREATE_POLICY) {
		cpu_state[first] = 0;
		freq_qos_add_request(&policy->constraints, &cpu_limit[first], FREQ_QOS_MAX,
				     FREQ_QOS_MAX_DEFAULT_VALUE);
	} else if (event == CPUFREQ_REMOVE_POLICY) {
		freq_qos_remove_request(&cpu_limit[first]);
	}
	return NOTIFY_OK;
}

static struct notifier_block cpu_policy_watch = { .notifier_call = cpu_policy_event };

static int cpu_max_state(struct thermal_cooling_device *cooler, unsigned long *state)
{
	*state = max(cpu_steps - 1, 0);
	return 0;
}

static int cpu_cur_state(struct thermal_cooling_device *cooler, unsigned long *state)
{
	*state = cpu_state[(long)cooler->devdata];
	return 0;
}

static int cpu_set_state(struct thermal_cooling_device *cooler, unsigned long state)
{
	long first = (long)cooler->devdata;

	if (state >= cpu_steps)
		return -EINVAL;
	if (freq_qos_request_active(&cpu_limit[first]))
		freq_qos_update_request(&cpu_limit[first],
					state ? cpu_table[cpu_steps - 1 - state].frequency :
						FREQ_QOS_MAX_DEFAULT_VALUE);
	cpu_state[first] = state;
	return 0;
}

static const struct thermal_cooling_device_ops cpu_cooling = {
	.get_max_state	= cpu_max_state,
	.get_cur_state	= cpu_cur_state,
	.set_cur_state	= cpu_set_state,
};

/* ---- GPU ---- */

/* Jetson AGX Orin in MAXN, Hz. */
static const unsigned long gpu_table[] = {
	306000000, 408000000, 510000000, 612000000, 714000000, 816000000,
	918000000, 1020000000, 1122000000, 1224000000, 1300500000,
};

static unsigned long gpu_hz = 1300500000;
static struct dev_pm_qos_request gpu_limit;
static struct thermal_cooling_device *gpu_cooler;
static unsigned long gpu_state;

static int gpu_target(struct device *dev, unsigned long *freq, u32 flags)
{
	struct dev_pm_opp *opp = devfreq_recommended_opp(dev, freq, flags);

	if (IS_ERR(opp))
		return PTR_ERR(opp);
	dev_pm_opp_put(opp);
	if (*freq == gpu_hz)
		return 0;
	if (gpu_delay_us)
		usleep_range(gpu_delay_us, gpu_delay_us + 20);
	if (gpu_errno)
		return -abs(gpu_errno);
	gpu_hz = *freq;
	keep(-1, gpu_hz);
	return 0;
}

static int gpu_get(struct device *dev, unsigned long *freq)
{
	*freq = gpu_cap_hz ? min(gpu_hz, gpu_cap_hz) : gpu_hz;
	return 0;
}

static int gpu_status(struct device *dev, struct devfreq_dev_status *status)
{
	status->current_frequency = gpu_hz;
	status->total_time = 1000;
	status->busy_time = min(gpu_load, 1000U);
	return 0;
}

static struct devfreq_dev_profile gpu_profile = {
	.polling_ms	= 50,
	.timer		= DEVFREQ_TIMER_DELAYED,
	.target		= gpu_target,
	.get_cur_freq	= gpu_get,
	.get_dev_status	= gpu_status,
};

static ssize_t load_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", gpu_load);
}
static DEVICE_ATTR_RO(load);

static struct attribute *gpu_attrs[] = { &dev_attr_load.attr, NULL };
ATTRIBUTE_GROUPS(gpu);

static int gpu_max_state(struct thermal_cooling_device *cooler, unsigned long *state)
{
	*state = ARRAY_SIZE(gpu_table) - 1;
	return 0;
}

static int gpu_cur_state(struct thermal_cooling_device *cooler, unsigned long *state)
{
	*state = gpu_state;
	return 0;
}

static int gpu_set_state(struct thermal_cooling_device *cooler, unsigned long state)
{
	if (state >= ARRAY_SIZE(gpu_table))
		return -EINVAL;
	if (dev_pm_qos_request_active(&gpu_limit))
		dev_pm_qos_update_request(&gpu_limit,
					  state ? gpu_table[ARRAY_SIZE(gpu_table) - 1 - state] / 1000 :
						  PM_QOS_MAX_FREQUENCY_DEFAULT_VALUE);
	gpu_state = state;
	return 0;
}

static const struct thermal_cooling_device_ops gpu_cooling = {
	.get_max_state	= gpu_max_state,
	.get_cur_state	= gpu_cur_state,
	.set_cur_state	= gpu_set_state,
};

static void gpu_forget_table(void *dev)
{
	dev_pm_opp_remove_all_dynamic(dev);
}

static int gpu_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct devfreq *devfreq;
	int i, err;

	/* Registered first, undone last: after the devfreq device that uses the table. */
	err = devm_add_action_or_reset(dev, gpu_forget_table, dev);
	if (err)
		return err;
	for (i = 0; i < ARRAY_SIZE(gpu_table); i++) {
		err = dev_pm_opp_add(dev, gpu_table[i], 600000 + i * 40000);
		if (err)
			return err;
	}
	gpu_profile.initial_freq = gpu_hz;
	devfreq = devm_devfreq_add_device(dev, &gpu_profile, DEVFREQ_GOV_SIMPLE_ONDEMAND, NULL);
	if (IS_ERR(devfreq))
		return PTR_ERR(devfreq);
	gpu_state = 0;
	err = dev_pm_qos_add_request(dev, &gpu_limit, DEV_PM_QOS_MAX_FREQUENCY,
				     PM_QOS_MAX_FREQUENCY_DEFAULT_VALUE);
	return err < 0 ? err : 0;
}

static int gpu_remove(struct platform_device *pdev)
{
	dev_pm_qos_remove_request(&gpu_limit);
	return 0;
}

static struct platform_driver gpu_driver = {
	.probe	= gpu_probe,
	.remove	= gpu_remove,
	.driver	= { .name = GPU_NAME, .dev_groups = gpu_groups },
};
static struct platform_device *gpu_device;

/* ---- all of it ---- */

static struct dentry *own_folder;

static void remove_coolers(void)
{
	int cpu;

	for (cpu = 0; cpu < NR_CPUS; cpu++)
		if (!IS_ERR_OR_NULL(cpu_cooler[cpu]))
			thermal_cooling_device_unregister(cpu_cooler[cpu]);
	if (!IS_ERR_OR_NULL(gpu_cooler))
		thermal_cooling_device_unregister(gpu_cooler);
}

static int add_coolers(void)
{
	unsigned int first = 0;
	char name[32];
	int i;

	for (i = 0; i < cluster_count; first += clusters[i++]) {
		struct thermal_cooling_device *cooler;

		snprintf(name, sizeof(name), "cpufreq-cpu%u", first);
		cooler = thermal_cooling_device_register(name, (void *)(long)first, &cpu_cooling);
		if (IS_ERR(cooler))
			return PTR_ERR(cooler);
		cpu_cooler[first] = cooler;
	}
	gpu_cooler = thermal_cooling_device_register("devfreq-" GPU_NAME, NULL, &gpu_cooling);
	return PTR_ERR_OR_ZERO(gpu_cooler);
}

static int __init orinlike_init(void)
{
	int i, err, total = 0;

	for (i = 0; i < cluster_count; i++) {
		if (clusters[i] < 1)
			return -EINVAL;
		total += clusters[i];
	}
	if (total > NR_CPUS)
		return -EINVAL;
	fill_table();
	err = cpufreq_register_notifier(&cpu_policy_watch, CPUFREQ_POLICY_NOTIFIER);
	if (err)
		return err;
	err = cpufreq_register_driver(&cpu_driver);
	if (err)
		goto no_cpu;
	err = platform_driver_register(&gpu_driver);
	if (err)
		goto no_driver;
	gpu_device = platform_device_register_simple(GPU_NAME, PLATFORM_DEVID_NONE, NULL, 0);
	err = PTR_ERR_OR_ZERO(gpu_device);
	if (err)
		goto no_device;
	err = add_coolers();
	if (err)
		goto no_coolers;
	own_folder = debugfs_create_dir("orinlike", NULL);
	debugfs_create_file("transitions", 0444, own_folder, NULL, &transitions_fops);
	return 0;
no_coolers:
	remove_coolers();
	platform_device_unregister(gpu_device);
no_device:
	platform_driver_unregister(&gpu_driver);
no_driver:
	cpufreq_unregister_driver(&cpu_driver);
no_cpu:
	cpufreq_unregister_notifier(&cpu_policy_watch, CPUFREQ_POLICY_NOTIFIER);
	return err;
}

static void __exit orinlike_exit(void)
{
	debugfs_remove_recursive(own_folder);
	remove_coolers();
	platform_device_unregister(gpu_device);
	platform_driver_unregister(&gpu_driver);
	cpufreq_unregister_driver(&cpu_driver);
	cpufreq_unregister_notifier(&cpu_policy_watch, CPUFREQ_POLICY_NOTIFIER);
}

module_init(orinlike_init);
module_exit(orinlike_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Clocks of a Jetson AGX Orin without hardware, for tests");
