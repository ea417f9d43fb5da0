/* Loads copies of libibverbs, one after the other, and prints the path of each and how many devices
 * it finds. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		void *(*list)(int *) = library ? (void *(*)(int *))dlsym(library, "ibv_get_device_list") : NULL;
		int count = 0;

		if (!list) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		list(&count);
		printf("%s %d\n", argv[i], count);
	}
	return 0;
}
