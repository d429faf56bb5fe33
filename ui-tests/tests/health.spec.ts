import { expect, shots, showPanel, test, type ITraining } from '../lab';
import { picture } from '../picture';

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-health', { monitor: true });
});

test.afterAll(async () => {
  await training.process.end();
});

test('an alarm that arrives is counted at the icon and in the panel, told, and one click from its view', async ({
  open
}) => {
  test.setTimeout(120_000);
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.getByRole('option', { name: /gpt-health/ })).toHaveAttribute('aria-selected', 'true');
  const icon = page.locator('.jp-SideBar [data-id="megalens-panel"]');
  await expect(icon).not.toHaveAttribute('data-alarms');
  await panel.getByRole('button', { name: 'Health', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(tab).toContainText(/Healthy for \d/, { timeout: 30_000 });
  training.tell('sick');
  const told = page
    .locator('.jp-toastContainer, .Toastify')
    .getByText(/gpt-health: first anomaly at step \d/);
  await expect(told).toBeVisible({ timeout: 30_000 });
  await expect(icon).toHaveAttribute('data-alarms', /\d/);
  await expect(panel.locator('.jp-MegalensRun-alarms')).toHaveText(/\d/);
  await expect(panel.locator('.jp-MegalensAlarmLine')).toContainText(
    /alarms?(, and \S+ that followed)?: first at step \d.*blocks\.1\.mlp\.fc1\.weight/
  );
  // The view that was open follows; another one of its own comes from the notification.
  const title = tab.locator('.jp-MegalensView-title').first();
  await expect(title).toContainText(/First anomaly at step \d.* of blocks\.1\.mlp\.fc1/);
  await page.locator('.lm-TabBar-tab', { hasText: 'Launcher' }).first().click();
  await page.getByRole('button', { name: 'Open Health' }).click();
  await expect(title).toContainText('First anomaly at step');
  await shots(page, 'lab-health');
});

test('a threshold is tried on the recorded past, put in force on the live run, and what it finds is muted', async ({
  open
}) => {
  test.setTimeout(150_000);
  const page = await open();
  const panel = await showPanel(page);
  await panel.getByRole('button', { name: 'Health', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  const rules = tab.locator('.jp-MegalensHealth-rules');
  const jump = rules.locator('tr', { hasText: 'Values are suddenly much larger' });
  await expect(jump).toBeVisible({ timeout: 30_000 });
  // With alarms it is laid out as it stays.
  training.tell('sick');
  await expect(tab.getByRole('heading', { name: /^Alarms: / })).toBeVisible({ timeout: 30_000 });
  const lower = async (label: string, value: string): Promise<void> => {
    const field = jump.getByLabel(label, { exact: true });
    await field.fill(value);
    await field.press('Enter');
    await expect(field).toHaveClass(/jp-mod-edited/);
  };
  await lower('Threshold', '2');
  await lower('Factor', '1.01');
  await lower('Factor of gradients', '1.01');
  // As it is in force, and as it is edited.
  await expect(jump.locator('td').nth(2)).toHaveText(/^0 → [1-9]/, { timeout: 60_000 });
  // Scrolls it into view, also when an update draws the row anew.
  await jump.hover();
  await picture(page, 'lab-rules-edited');
  await rules.getByRole('button', { name: 'Apply' }).click();
  await expect(rules).toContainText(/In force since step \d/, { timeout: 30_000 });
  await expect(jump.getByLabel('Threshold', { exact: true })).toHaveValue('2');
  // The run now raises what the recording said it would.
  const found = tab.locator('tr', { hasText: 'jump' }).filter({ hasText: 'HereRule' });
  await expect(found).not.toHaveCount(0, { timeout: 60_000 });
  await found.first().getByRole('button', { name: 'Rule', exact: true }).click();
  const muted = tab.locator('tr', { hasText: 'Unmute' });
  await expect(muted).toContainText('jump', { timeout: 30_000 });
  await expect(found).toHaveCount(0);
  await muted.hover();
  await shots(page, 'lab-rules');
  await muted.getByRole('button', { name: 'Unmute' }).click();
  await expect(muted).toHaveCount(0, { timeout: 30_000 });
});
