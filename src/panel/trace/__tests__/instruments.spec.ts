import { ProtocolError } from '../../../protocol/protocol-error';
import { HELLO } from '../../shell/__tests__/controlled-run';
import { shown, until } from '../../shell/__tests__/shown-panel';
import { groupsOf } from '../instruments-section';

const every = (title: string): object => ({ type: 'integer', title, minimum: 0, default: 0 });
const SCHEMA = {
  type: 'object',
  properties: {
    every: {
      type: 'object',
      title: 'Every how many steps',
      description: 'At every step whose number it divides; 0 is off.',
      properties: { grad: every('Gradients'), activation: every('Activations') }
    }
  }
};
const RULES = {
  properties: {
    rules: { properties: { jump: { type: 'object', properties: { on: { type: 'boolean' } } } } },
    muted: { type: 'array' }
  }
};
const SETTINGS = { every: { grad: 1, activation: 10 } };

it('has a form for what is flat, and none for what nests deeper', () => {
  expect(groupsOf({ schema: SCHEMA }).map(({ name, title }) => [name, title])).toEqual([
    ['every', 'Every how many steps']
  ]);
  expect(groupsOf({ schema: RULES })).toEqual([]);
  expect(groupsOf({ schema: { properties: { every: 3, other: { properties: {} } } } })).toEqual([]);
});

async function form() {
  const all = await shown({
    ...HELLO,
    configurable: {
      moments: { title: 'Statistics', schema: SCHEMA },
      monitor: { title: 'Rules', schema: RULES }
    },
    config: { flags: {}, instruments: { moments: SETTINGS } }
  });
  const field = (name: string) => all.find(`#jp-Megalens-moments-every-${name}`) as HTMLInputElement | null;
  await until(() => field('grad') !== null);
  const type = async (name: string, value: string): Promise<void> => {
    const input = field(name)!;
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')!.set!.call(input, value);
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(done => setTimeout(done));
  };
  const section = all.find('.jp-mod-instrument-moments')!;
  const button = (text: string) =>
    [...section.querySelectorAll('button')].find(each => each.textContent === text)!;
  return { ...all, section, field, type, button };
}

it('shows the intervals in force, folded, and writes what was edited in one change', async () => {
  const { panel, section, field, type, button, source } = await form();
  expect(section.querySelector<HTMLElement>('.jp-MegalensSection-body')?.hidden).toBe(true);
  expect([field('grad')?.value, field('activation')?.value]).toEqual(['1', '10']);
  expect(button('Apply').getAttribute('aria-disabled')).toBe('true');
  await type('grad', '0');
  expect(button('Apply').getAttribute('aria-disabled')).toBe('false');
  button('Apply').click();
  await until(() => section.textContent!.includes('✓ Applied at step'));
  expect(source.patches).toEqual([{ flags: {}, instruments: { moments: { every: { grad: 0 } } } }]);
  panel.dispose();
});

it('says at the field what the run refuses, and keeps what was typed', async () => {
  const { panel, section, field, type, button, source } = await form();
  const at = 'instruments.moments.every.grad';
  jest
    .spyOn(source, 'configure')
    .mockRejectedValue(new ProtocolError('bad-parameter', 'grad must be a whole number.', { field: at }));
  await type('grad', '7');
  button('Apply').click();
  await until(() => section.querySelector('#jp-Megalens-moments-every-grad-fault') !== null);
  expect(section.querySelector('[role=alert]')?.textContent).toBe('grad must be a whole number.');
  expect(field('grad')?.value).toBe('7');
  field('grad')!.dispatchEvent(new FocusEvent('focusout', { bubbles: true }));
  button('Revert').click();
  await new Promise(done => setTimeout(done));
  expect(field('grad')?.value).toBe('1');
  panel.dispose();
});
