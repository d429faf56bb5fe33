import { PlanError } from '../../plan/plan-shape';
import { requestCheck } from './split-request';
import type { RankMapName, RankMapRequest } from '../protocol/split.generated';

interface IHost {
  readonly name: string;
  readonly slots: number;
  /** What its slots may hold. */
  readonly role: 'any' | 'backward' | 'forward';
  /** Device for the launcher, such as cuda; empty where the file does not say. */
  readonly device: string;
}

interface ISeat {
  readonly host: string;
  /** Which of the host's slots, from 0. */
  readonly slot: number;
  readonly device: string;
}

const MOST_HOSTS = 65_536;
const MOST_SLOTS = 1024;
const ROLES = ['any', 'backward', 'forward'] as const;

/**
 * Read a host file: a line for each host, such as `node1 slots=4 role=backward device=cuda`.
 * @throws PlanError `request` with the line that is wrong.
 */
function hostsOf(text: string): IHost[] {
  const hosts: IHost[] = [];
  text.split('\n').forEach((line, at) => {
    const [name, ...words] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (name === undefined || name === '') {
      return;
    }
    const wrong = (what: string): PlanError =>
      new PlanError('request', `Line ${at + 1} of the host file ${what}.`, { field: 'hosts' });
    if (hosts.some(each => each.name === name)) {
      throw wrong(`names ${name.slice(0, 80)} again`);
    }
    const fields = new Map<string, string>();
    for (const word of words) {
      const [key = '', value = ''] = word.split('=', 2);
      if (!['slots', 'role', 'device'].includes(key) || value === '') {
        throw wrong(`must have slots=, role= or device= after the name, got ${word.slice(0, 80)}`);
      }
      fields.set(key, value);
    }
    const slots = fields.get('slots') ?? '1';
    if (!/^\d{1,6}$/.test(slots) || Number(slots) < 1 || Number(slots) > MOST_SLOTS) {
      throw wrong(`must have slots from 1 to ${MOST_SLOTS}, got ${slots.slice(0, 80)}`);
    }
    const role = ROLES.find(each => each === (fields.get('role') ?? 'any'));
    if (role === undefined) {
      throw wrong(`must have the role ${ROLES.join(', ')}, got ${fields.get('role')!.slice(0, 80)}`);
    }
    if (hosts.length === MOST_HOSTS) {
      throw wrong(`is one too many: at most ${MOST_HOSTS} hosts are read`);
    }
    hosts.push({ name, slots: Number(slots), role, device: fields.get('device') ?? '' });
  });
  return hosts;
}

/**
 * Give each process a slot: of hosts for its role first, then of those for any, in the order of the file. A
 * coordinator takes one for any, or for forward processes.
 * @throws PlanError `fit` where slots are lacking, with how many.
 */
function seatsOf(hosts: readonly IHost[], processes: readonly IMappedProcess[]): ISeat[] {
  const free = {
    any: seats(hosts, 'any'),
    backward: seats(hosts, 'backward'),
    forward: seats(hosts, 'forward')
  };
  const total = hosts.reduce((sum, { slots }) => sum + slots, 0);
  const lacking = { backward: 0, forward: 0 };
  const found = processes.map(({ role }) => {
    const own = role === 'backward' ? 'backward' : 'forward';
    const [first, second] = role === 'coordinator' ? [free.any, free.forward] : [free[own], free.any];
    const seat = first.next().value ?? second.next().value;
    lacking[own] += seat === undefined ? 1 : 0;
    return seat;
  });
  const words = (['forward', 'backward'] as const)
    .filter(role => lacking[role] > 0)
    .map(role => `${lacking[role]} ${role}`)
    .join(' and ');
  if (words !== '') {
    throw new PlanError(
      'fit',
      `The host file must have a slot for each of ${processes.length} processes, got ${total}, and none for ${words} of them. Add slots, or write role=any.`,
      { field: 'hosts' }
    );
  }
  return found.flatMap(seat => seat ?? []);
}

/** The slots of all hosts of a role, in the order of the file. */
function* seats(hosts: readonly IHost[], role: IHost['role']): Generator<ISeat, undefined> {
  for (const { name, slots, device } of hosts.filter(each => each.role === role)) {
    for (let slot = 0; slot < slots; slot += 1) {
      yield { host: name, slot, device };
    }
  }
}

/** What a process does. coordinator: MegaFBD's rank 0, which holds no model but takes a slot. */
export type ProcessRole = 'backward' | 'coordinator' | 'forward';

/** A rank as Megatron counts it, tensor before data before pipeline, and the process that stands for it. */
export interface IVirtualRank {
  readonly virtual: number;
  readonly real: number;
  readonly role: 'backward' | 'forward';
  /** Index in the tensor-parallel group, stage, index in Megatron's data-parallel group; all from 0. */
  readonly tensor: number;
  readonly pipeline: number;
  readonly data: number;
  /** Whose samples it trains on: half of data, rounded down. */
  readonly replica: number;
}

export interface IMappedProcess {
  readonly real: number;
  readonly role: ProcessRole;
  /** -1 of a coordinator, as the two below. */
  readonly pipeline: number;
  readonly replica: number;
  /** Place among the processes of its role that share a stage. */
  readonly tensor: number;
  /** The virtual ranks that it stands for. */
  readonly virtual: readonly number[];
  /** Where it runs; null where no host file says it. */
  readonly seat: ISeat | null;
}

export interface IRankMap {
  readonly layout: RankMapName;
  readonly tensor: number;
  readonly forwardTensor: number;
  readonly stages: number;
  readonly replicas: number;
  readonly lastForward: boolean;
  /** By virtual rank; without those of forward processes that are left out. */
  readonly ranks: readonly IVirtualRank[];
  /** By real rank. */
  readonly processes: readonly IMappedProcess[];
}

const MOST_PROCESSES = 1 << 18;

const checked = requestCheck<RankMapRequest>('RankMapRequest');

/**
 * Say which process does what.
 *
 * Megatron's data-parallel indices count forward and backward apart: the even one of a pair is the forward,
 * the odd one the backward part, and both see the same samples. Blocks of a pair of tensor-parallel groups
 * follow one another by stage, within a stage by replica; each has its forward processes first.
 * @throws PlanError `request` for what is no such request; `fit` with the field where numbers do not go
 *   together, or hosts have too few slots.
 */
export function rankMap(value: unknown): IRankMap {
  const request = checked(value);
  const shape = shapeOf(request);
  const processes = processesOf(shape);
  const needed = processes.length;
  if (request.world !== null && request.world !== undefined && request.world !== needed) {
    throw misfit(
      'world',
      `This layout needs ${needed} processes (${countWords(processes)}), got ${request.world}. Start ${needed}, or change the degrees.`
    );
  }
  const seats = request.hosts ? seatsOf(hostsOf(request.hosts), processes) : null;
  return {
    ...shape,
    ranks: ranksOf(shape, processes),
    processes: processes.map((each, at) => ({ ...each, seat: seats?.[at] ?? null }))
  };
}

/** MegaFBD's table by virtual rank: a forward rank's tensor index; of a backward rank -1 minus that. */
export function deletedRanks({ ranks }: IRankMap): number[] {
  return ranks.map(({ role, tensor }) => (role === 'forward' ? tensor : -tensor - 1));
}

type Shape = Omit<IRankMap, 'processes' | 'ranks'>;

function shapeOf(request: RankMapRequest): Shape {
  const { layout = 'megalens', tensor, pipeline, data } = request;
  const isOurs = layout === 'megalens';
  for (const field of ['context', 'expert'] as const) {
    const degree = request[field] ?? 1;
    if (degree > 1) {
      throw misfit(
        field,
        `${field} must be 1, got ${degree}: forward and backward processes do not share a sequence or experts. Train this model without a split.`
      );
    }
  }
  if (!isOurs && data % 2 === 1) {
    throw misfit(
      'data',
      `data must be even for ${layout}, got ${data}: one half of it is forward, the other backward. layout megalens takes any number of replicas.`
    );
  }
  const forwardTensor = request.forward_tensor ?? (layout === 'megafbd' ? 1 : tensor);
  const lastForward = request.last_forward ?? true;
  const fixed = layout === 'megafbd' ? 1 : tensor;
  if (!isOurs && forwardTensor !== fixed) {
    throw misfit('forward_tensor', `forward_tensor of ${layout} is always ${fixed}, got ${forwardTensor}.`);
  }
  if (tensor % forwardTensor > 0) {
    throw misfit(
      'forward_tensor',
      `forward_tensor must divide tensor, ${tensor}, got ${forwardTensor}. Try ${divisors(tensor)}.`
    );
  }
  if (!lastForward && (!isOurs || pipeline === 1)) {
    throw misfit(
      'last_forward',
      isOurs
        ? 'last_forward must be true with one stage: without its forward processes nothing is split.'
        : `Only layout megalens does without the last stage's forward processes, got ${layout}.`
    );
  }
  const replicas = isOurs ? data : data / 2;
  if (replicas * pipeline * (tensor + forwardTensor) > MOST_PROCESSES) {
    throw misfit('data', `A map has at most ${MOST_PROCESSES} processes; these degrees need more.`);
  }
  return { layout, tensor, forwardTensor, stages: pipeline, replicas, lastForward };
}

function processesOf(shape: Shape): IMappedProcess[] {
  const { layout, tensor, forwardTensor, stages, replicas, lastForward } = shape;
  const processes: IMappedProcess[] = [];
  const enter = (each: Omit<IMappedProcess, 'real' | 'seat'>): void => {
    processes.push({ real: processes.length, seat: null, ...each });
  };
  if (layout === 'megafbd') {
    enter({ role: 'coordinator', pipeline: -1, replica: -1, tensor: -1, virtual: [] });
  }
  for (let pipeline = 0; pipeline < stages; pipeline += 1) {
    for (let replica = 0; replica < replicas; replica += 1) {
      const first = 2 * tensor * (replica + replicas * pipeline);
      const each = tensor / forwardTensor;
      for (let at = 0; at < forwardTensor && (lastForward || pipeline < stages - 1); at += 1) {
        const virtual = Array.from({ length: each }, (_, thread) => first + at * each + thread);
        enter({ role: 'forward', pipeline, replica, tensor: at, virtual });
      }
      for (let at = 0; at < tensor; at += 1) {
        enter({ role: 'backward', pipeline, replica, tensor: at, virtual: [first + tensor + at] });
      }
    }
  }
  return processes;
}

function ranksOf({ tensor, replicas }: Shape, processes: readonly IMappedProcess[]): IVirtualRank[] {
  return processes
    .flatMap(({ role, real, virtual }) =>
      role === 'coordinator'
        ? []
        : virtual.map(rank => {
            const data = Math.floor(rank / tensor) % (2 * replicas);
            return {
              virtual: rank,
              real,
              role,
              tensor: rank % tensor,
              pipeline: Math.floor(rank / (tensor * 2 * replicas)),
              data,
              replica: Math.floor(data / 2)
            };
          })
    )
    .sort((a, b) => a.virtual - b.virtual);
}

/** How many processes of each role there are: `4 forward, 8 backward`. */
export function countWords(processes: readonly { readonly role: ProcessRole }[]): string {
  return (['coordinator', 'forward', 'backward'] as const)
    .map(role => [role, processes.filter(each => each.role === role).length] as const)
    .filter(([, count]) => count > 0)
    .map(([role, count]) => `${count} ${role}`)
    .join(', ');
}

const divisors = (of: number): string =>
  Array.from({ length: of }, (_, at) => at + 1)
    .filter(each => of % each === 0)
    .join(', ');

const misfit = (field: string, message: string): PlanError => new PlanError('fit', message, { field });
