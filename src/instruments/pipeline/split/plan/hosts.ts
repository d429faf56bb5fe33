import { PlanError } from '../../plan/plan-error';
import type { IMappedProcess } from './rank-map';

/** A line of a host file. */
export interface IHost {
  readonly name: string;
  readonly slots: number;
  /** What its slots may hold. */
  readonly role: 'any' | 'backward' | 'forward';
  /** What the launcher is told, such as cuda; empty where the file does not say. */
  readonly device: string;
}

/** Where a process runs. */
export interface ISeat {
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
 *
 * @throws PlanError `request` with the line that is wrong.
 */
export function hostsOf(text: string): IHost[] {
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
    const said = new Map<string, string>();
    for (const word of words) {
      const [key = '', value = ''] = word.split('=', 2);
      if (!['slots', 'role', 'device'].includes(key) || value === '') {
        throw wrong(`must have slots=, role= or device= after the name, got ${word.slice(0, 80)}`);
      }
      said.set(key, value);
    }
    const slots = said.get('slots') ?? '1';
    if (!/^\d{1,6}$/.test(slots) || Number(slots) < 1 || Number(slots) > MOST_SLOTS) {
      throw wrong(`must have slots from 1 to ${MOST_SLOTS}, got ${slots.slice(0, 80)}`);
    }
    const role = ROLES.find(each => each === (said.get('role') ?? 'any'));
    if (role === undefined) {
      throw wrong(`must have the role ${ROLES.join(', ')}, got ${said.get('role')!.slice(0, 80)}`);
    }
    if (hosts.length === MOST_HOSTS) {
      throw wrong(`is one too many: at most ${MOST_HOSTS} hosts are read`);
    }
    hosts.push({ name, slots: Number(slots), role, device: said.get('device') ?? '' });
  });
  return hosts;
}

/**
 * Give each process a slot: of hosts for its role first, then of those for any, in the order of the file. A coordinator takes one for any, or for forward processes.
 *
 * @throws PlanError `fit` where slots are lacking, with how many.
 */
export function seatsOf(hosts: readonly IHost[], processes: readonly IMappedProcess[]): ISeat[] {
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
