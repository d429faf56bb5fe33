import type { Page } from '@playwright/test';
import { violations } from '../axe.cjs';
import { expect } from './test';

export type Theme = 'light' | 'dark';

/** What a theme can break; all else is the same in both. */
export const rules = (theme: Theme): readonly string[] | undefined =>
  theme === 'dark' ? ['color-contrast'] : undefined;

/** Nothing of the view that is shown breaks a rule. */
export async function breaksNoRule(page: Page, theme: Theme, what: string): Promise<void> {
  expect.soft(await violations(page, ['#view'], rules(theme)), `${what}, ${theme}`).toEqual([]);
}

/** The same once a button was clicked, which is closed again; where there is such a button. */
export async function breaksNoRuleOpen(
  page: Page,
  theme: Theme,
  what: string,
  name: RegExp | string
): Promise<void> {
  const button = page.getByRole('button', { name }).first();
  if (await button.isVisible()) {
    await button.click();
    await breaksNoRule(page, theme, `${what}, ${name} open`);
    await page.keyboard.press('Escape');
  }
}
